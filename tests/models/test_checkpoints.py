"""Checkpoints of other layouts: loading, conversion, and errors for broken folders."""

import errno
import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from common import relative
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM, SiglipVisionConfig, SiglipVisionModel
from typer.testing import CliRunner

from aviot import VideoLM
from aviot.backbones.checkpoints import shards
from aviot.backbones.checkpoints.shards import CheckpointError
from aviot.backbones.llava_video.conversion import convert_checkpoint
from aviot.bundled import embedded_model
from aviot.cli import app
from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
VISION = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 54,
    "patch_size": 2,
}
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 391,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
}


class Llava(nn.Module):
    """LLaVA-Video as its authors describe it, built from parts of transformers and independent of our model."""

    def __init__(self):
        super().__init__()
        self.vision = SiglipVisionModel(SiglipVisionConfig(**VISION, vision_use_head=False))
        self.projector = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 32))
        self.newline = nn.Parameter(torch.randn(32))
        self.decoder = Qwen2ForCausalLM(Qwen2Config(**TEXT))

    def forward(self, pixels, ids, place):
        features = self.vision(pixels, output_hidden_states=True).hidden_states[-2]
        projected = self.projector(features).view(len(pixels), 27, 27, 32).permute(0, 3, 1, 2)
        pooled = nn.functional.interpolate(projected, size=(14, 14), mode="bilinear").permute(0, 2, 3, 1)
        rows = torch.cat((pooled, self.newline.expand(len(pixels), 14, 1, 32)), 2).reshape(-1, 32)
        embedded = self.decoder.get_input_embeddings()(ids)
        sequence = torch.cat((embedded[:place], rows, embedded[place + 1 :]))
        return self.decoder(inputs_embeds=sequence[None]).logits


def published(llava, with_last_layer):
    """Return the same weights under the names of LLaVA-Video checkpoints."""
    tensors = {"model.image_newline": llava.newline.data}
    tensors |= {f"model.mm_projector.{name}": value for name, value in llava.projector.state_dict().items()}
    tensors |= dict(llava.decoder.state_dict())
    for name, value in llava.vision.state_dict().items():
        if with_last_layer or "layers.2." not in name:
            tensors[f"model.vision_tower.vision_tower.vision_model.{name}"] = value
    return {name: value.contiguous().clone() for name, value in tensors.items()}


def write_llava(folder, llava, with_last_layer=False):
    folder.mkdir()
    config = {"model_type": "llava_qwen", "architectures": ["LlavaQwenForCausalLM"], **TEXT}
    config |= {"mm_vision_tower": "some/siglip", "mm_spatial_pool_stride": 2, "mm_spatial_pool_mode": "bilinear"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vision_tower").mkdir()
    (folder / "vision_tower" / "config.json").write_text(json.dumps({"vision_config": VISION}))
    tensors = published(llava, with_last_layer)
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, members in parts.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in parts.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(GOLDEN / file, folder / file)
    return folder


@pytest.fixture
def llava():
    torch.manual_seed(0)
    return Llava().eval()


@pytest.mark.parametrize("with_last_layer", [False, True])
def test_llava_video_answers_as_it_did_and_starts_a_fresh_compressor(llava, tmp_path, caplog, with_last_layer):
    folder = write_llava(tmp_path / "llava", llava, with_last_layer)
    with caplog.at_level(logging.WARNING):
        model = AviotForConditionalGeneration.from_pretrained(folder).eval()
    assert "start untrained" in caplog.text
    assert model.model.position.proj.weight.eq(0).all()
    assert model.model.compressor.region_position.weight.eq(0).all()
    new = AviotForConditionalGeneration(model.config).model
    assert new.position.proj.weight.eq(0).all()
    assert new.compressor.region_position.weight.eq(0).all()
    processor = AviotProcessor.from_pretrained(folder)
    batch = processor(torch.randint(0, 255, (6, 20, 20, 3), dtype=torch.uint8), "What is it?", source_fps=2.0)
    place = (batch["input_ids"][0] == -200).nonzero().item()
    with torch.no_grad():
        pixels = (batch["pixel_values"].float() / 255 - 0.5) / 0.5
        expected = llava(pixels, batch["input_ids"][0].clamp_min(0), place)
        found = model(**batch, compressor="none").logits
        compressed = model(**batch, ratio=2.0).logits
    assert relative(found, expected) < 1e-5
    assert torch.isfinite(compressed).all()


def test_aviot_runs_training_free_on_a_llava_video_checkpoint(llava, tmp_path, caplog):
    lm = VideoLM.from_pretrained(write_llava(tmp_path / "llava", llava), device="cpu")
    clip = torch.randint(0, 255, (6, 20, 20, 3), dtype=torch.uint8).numpy()
    session = lm.open(clip, source_fps=2.0)
    with caplog.at_level(logging.WARNING, "aviot.backbones.base"):
        answers = [session.ask("What?", budget=2, method=name, max_new_tokens=2) for name in ("aviot", "aviot-free")]
    assert [answer.method for answer in answers] == ["aviot-free", "aviot-free"]
    assert answers[0].text == answers[1].text
    assert caplog.text.count("method aviot has not been trained for this llava-video model; aviot-free runs") == 1
    read = session.compress("What?", budget=2)
    assert read.method == session.answer("What?", read, max_new_tokens=2).method == "aviot-free"


def test_conversion_equals_loading_as_it_is(llava, tmp_path, caplog):
    folder = write_llava(tmp_path / "llava", llava)
    with caplog.at_level(logging.WARNING):
        steps = list(convert_checkpoint(folder, tmp_path / "ours"))
    assert "start untrained" in caplog.text
    assert steps == [(1, 3), (2, 3), (3, 3)]
    ours = AviotForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()
    direct = AviotForConditionalGeneration.from_pretrained(folder).eval()
    for name, value in direct.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    assert AviotProcessor.from_pretrained(tmp_path / "ours").image_size == 54


def test_published_conversion(tmp_path):
    list(convert_checkpoint(GOLDEN, tmp_path / "ours"))
    ours = AviotForConditionalGeneration.from_pretrained(tmp_path / "ours")
    direct = AviotForConditionalGeneration.from_pretrained(GOLDEN)
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), direct.state_dict().values(), strict=True))
    assert ours.generation_config.eos_token_id == 2


def test_conversion_never_overwrites_and_leaves_nothing_half_written(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(CheckpointError, match="exists already"):
        list(convert_checkpoint(GOLDEN, tmp_path / "there"))
    broken = shutil.copytree(GOLDEN, tmp_path / "broken")
    (broken / "tokenizer.json").unlink()
    (broken / "tokenizer_config.json").write_text("{")
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the tokenizer library says)
        list(convert_checkpoint(broken, tmp_path / "new"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "there"]


@pytest.fixture
def full_disk(monkeypatch):
    """Simulate a disk that is full after the first bytes of the weights."""

    def save(tensors, path, metadata):
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(shards, "save_file", save)


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, full_disk):
    target = tmp_path / "new" / "folder" / "ours"
    said = r"ours could not be written: .*No space left on device.*; free some space, or name a target elsewhere"
    with pytest.raises(OSError, match=said):
        list(convert_checkpoint(GOLDEN, target))
    assert not list(tmp_path.iterdir())


def test_a_config_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def refuse(self, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(AviotProcessor, "save_pretrained", refuse)
    with pytest.raises(OSError, match="ours could not be written: No space left on device; free some space"):
        list(convert_checkpoint(GOLDEN, tmp_path / "ours"))
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_too_small_is_refused_before_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(CheckpointError, match=r"the weights take .* MB and .* has 0\.0 MB left; free some space"):
        list(convert_checkpoint(GOLDEN, tmp_path / "ours"))
    assert not list(tmp_path.iterdir())


def test_a_target_that_cannot_be_made_is_refused_before_the_source_is_read(tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(ValueError, match="notes is a file; name a target elsewhere"):
        list(convert_checkpoint(tmp_path / "nowhere", tmp_path / "notes" / "ours"))


def test_a_conversion_is_described(llava, tmp_path):
    folder = write_llava(tmp_path / "llava", llava)
    done = CliRunner().invoke(app, ["convert", str(folder), str(tmp_path / "ours"), "--json"])
    assert done.exit_code == 0
    files = list((tmp_path / "ours").glob("*.safetensors"))
    assert json.loads(done.stdout) == {
        "source": str(folder),
        "target": str(tmp_path / "ours"),
        "layout": "llava-video",
        "shards": 3,
        "tensors": sum(len(load_file(file)) for file in files),
        "bytes": sum(file.stat().st_size for file in files),
    }


def change(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda t: t.pop("model.norm.weight"), "missing: model.language_model.norm.weight"),
        (lambda t: t.update({"model.extra.weight": torch.zeros(1)}), "unexpected: model.extra.weight"),
        (lambda t: t.update({"model.aviot_compressor.odd": torch.zeros(1)}), "unexpected: model.aviot_compressor.odd"),
        (
            lambda t: t.update({"model.video_row_separator": torch.zeros(7)}),
            r"wrong shape: model.video_row_separator \(7,\) \(expected \(32,\)\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, edit, sentence):
    folder = shutil.copytree(GOLDEN, tmp_path / "c")
    change(folder, edit)
    with pytest.raises(CheckpointError, match=sentence):
        AviotForConditionalGeneration.from_pretrained(folder)


def test_a_missing_shard_is_named(llava, tmp_path):
    folder = write_llava(tmp_path / "llava", llava)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"shard model-00002-of-00002.safetensors is missing"):
        AviotForConditionalGeneration.from_pretrained(folder)


def test_an_index_cannot_lead_elsewhere(llava, tmp_path):
    folder = write_llava(tmp_path / "llava", llava)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(CheckpointError, match="is not the file name"):
        AviotForConditionalGeneration.from_pretrained(folder)


def edit_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


def test_names_that_are_no_folder(tmp_path):
    for name in (tmp_path / "nowhere", "nowhere"):
        with pytest.raises(CheckpointError, match="no such folder"):
            AviotForConditionalGeneration.from_pretrained(name)
        with pytest.raises(CheckpointError, match="no such folder"):
            AviotProcessor.from_pretrained(name)
    with pytest.raises(CheckpointError, match="the hub did not give it"):
        AviotForConditionalGeneration.from_pretrained("some/model", local_files_only=True)


def test_another_models_config_does_not_become_a_default_one():
    with pytest.raises(ValueError, match="this config is of a 'aviot_qwen' model"):
        AviotConfig.from_pretrained(GOLDEN)


@pytest.mark.parametrize("how", [{"use_safetensors": True}, {"output_loading_info": True}])
def test_options_of_from_pretrained(tmp_path, how):
    direct = AviotForConditionalGeneration.from_pretrained(GOLDEN, **how)
    (direct[0] if isinstance(direct, tuple) else direct).save_pretrained(tmp_path)
    ours = AviotForConditionalGeneration.from_pretrained(tmp_path, **how)
    assert type(direct) is type(ours)


def test_a_given_config_is_used():
    config = AviotForConditionalGeneration.from_pretrained(GOLDEN).config
    config.ratio = 7.0
    assert AviotForConditionalGeneration.from_pretrained(GOLDEN, config=config).config.ratio == 7.0


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "as pickles"),
        (lambda f: (f / "model.safetensors").unlink(), "holds no weights"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\0" * 50), "not a whole safetensors file"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:9000]), "not a whole"),
        (lambda f: (f / "config.json").unlink(), "no such file"),
        (lambda f: (f / "config.json").write_text("{"), "not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object"),
        (lambda f: (f / "config.json").write_text('{"model_type": "bert"}'), "model_type must be one of"),
        (lambda f: edit_config(f, hidden_size="abc"), "does not describe a model"),
        (lambda f: edit_config(f, spatial_pool_stride=0), "pool_stride must be a whole number"),
        (lambda f: edit_config(f, spatial_pool_mode="average"), "spatial_pool_mode must be 'bilinear'"),
    ],
)
def test_broken_folders(tmp_path, spoil, sentence):
    folder = shutil.copytree(GOLDEN, tmp_path / "c", ignore=shutil.ignore_patterns("expected.*"))
    spoil(folder)
    with pytest.raises(CheckpointError, match=sentence):
        AviotForConditionalGeneration.from_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("tokenizer.json", '{"a": 1', "its tokenizer .* cannot be read"),
        ("tokenizer.json", '{"a": 1}', "its tokenizer .* cannot be read"),
        ("processor_config.json", "{bad", "processor_config.json: not JSON"),
        ("processor_config.json", "[]", "processor_config.json: expected a JSON object"),
        ("processor_config.json", '{"fps": "x"}', "processor_config.json: fps must be"),
        ("processor_config.json", '{"image_size": 10.5}', "processor_config.json: image_size must be"),
        ("config.json", '{"model_type": "aviot", "vision_config": {}}', "config.json: text_config must be an object"),
        ("config.json", '{"model_type": "aviot", "text_config": {}}', "config.json: vision_config must be an object"),
    ],
)
def test_the_file_that_is_broken_is_named(tmp_path, name, text, sentence):
    folder = shutil.copytree(embedded_model(), tmp_path / "c")
    (folder / name).write_text(text)
    with pytest.raises(CheckpointError, match=sentence):
        AviotProcessor.from_pretrained(folder)


def test_a_callers_mistake_is_not_the_checkpoints():
    for wrong in ({"tokenizer_type": "nope"}, {"fps": 0}):
        with pytest.raises(ValueError, match=r"nope|fps must be") as refused:
            AviotProcessor.from_pretrained(embedded_model(), **wrong)
        assert not isinstance(refused.value, CheckpointError)


def test_an_unknown_encoder_is_named(llava, tmp_path):
    folder = write_llava(tmp_path / "llava", llava)
    shutil.rmtree(folder / "vision_tower")
    with pytest.raises(CheckpointError, match="vision tower 'some/siglip' is not known here"):
        AviotForConditionalGeneration.from_pretrained(folder)
