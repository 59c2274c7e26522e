"""Configs with absurd or wrong values are refused quickly, by one sentence that names file and field."""

import json
import struct

import numpy as np
import pytest
import torch
from hostile import GOLDEN, golden, load, put, quickly, small
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from aviot import VideoLM
from aviot.backbones.checkpoints.shards import CheckpointError
from aviot.bundled import embedded_model
from aviot.cli import app
from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor

ESCAPES = "\x1b[31mred\x1b]0;title\x07\u202e"
NASTY = [None, "", "x", [], {}, -1, 0, 10**18, 1e308, float("nan"), True, [[None]], {"a": {"b": 1}}, ESCAPES * 5000]
ABSURD = [
    ("text_config.num_hidden_layers", 10_000_000),
    ("text_config.num_hidden_layers", 500),
    ("text_config.num_hidden_layers", 7),
    ("text_config.hidden_size", 10**9),
    ("text_config.intermediate_size", 2**18),
    ("text_config.vocab_size", 2**21),
    ("text_config.vocab_size", 10**18),
    ("text_config.num_attention_heads", 128),
    ("text_config.num_key_value_heads", 4),
    ("text_config.max_position_embeddings", 10**18),
    ("text_config.head_dim", 2**10),
    ("text_config.layer_types", ["full_attention"] * 100_000),
    ("text_config.sliding_window", 10**18),
    ("text_config.rope_parameters", {"rope_type": "default", "rope_theta": float("nan")}),
    ("text_config.model_type", "detr"),
    ("vision_config.num_hidden_layers", 10_000_000),
    ("vision_config.num_hidden_layers", 400),
    ("vision_config.image_size", 100_000),
    ("vision_config.image_size", 4096),
    ("vision_config.patch_size", 108),
    ("vision_config.hidden_size", 192 * 1000),
    ("vision_config.num_channels", 10**6),
    ("vision_config.model_type", "timm_wrapper"),
    ("compressor_config.rounds", [10**9, 2, 1]),
    ("compressor_config.transport.updates", 10**9),
    ("compressor_config.segments", 10**12),
    ("compressor_config.grid", [1000, 1000]),
    ("compressor_config.cost_dim", 65_536),
    ("compressor_config.position.bands", 64),
    ("ratio", 1.0),
    ("ratio", float("nan")),
    ("pool_stride", 10**9),
    ("video_token_id", 5),
    ("dtype", "int8"),
]


@pytest.mark.parametrize(("field", "value"), ABSURD)
def test_absurd_numbers_are_refused_at_once(tmp_path, field, value):
    folder = small(tmp_path)
    put(folder / "config.json", value, *field.split("."))
    for loads in (AviotProcessor.from_pretrained, AviotForConditionalGeneration.from_pretrained):
        with quickly(), pytest.raises(CheckpointError, match=r"config\.json") as refused:
            loads(folder)
        assert field.split(".")[-1] in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 10_000_000),
        ("vocab_size", 10**9),
        ("aviot_sinkhorn_iterations", 10**9),
        ("aviot_global_refinement_rounds", 10**9),
        ("aviot_multiscale_refinement_rounds", 3),
        ("aviot_gate_hidden_size", 16),
        ("aviot_thw_num_bands", 10**6),
        ("spatial_pool_stride", 10**9),
        ("aviot_transport_loss_weight", "x"),
        ("tie_word_embeddings", "x"),
        ("eos_token_id", 391),
    ],
)
def test_absurd_numbers_of_a_published_config(tmp_path, field, value):
    folder = golden(tmp_path)
    put(folder / "config.json", value, field)
    with quickly(), pytest.raises(CheckpointError, match=rf"config\.json.*{field}"):
        load(folder)


def test_absurd_numbers_of_a_published_encoder(tmp_path):
    folder = golden(tmp_path)
    for value in (10_000_000, 1, "x", None):
        put(folder / "vision_tower" / "config.json", value, "vision_config", "num_hidden_layers")
        with quickly(), pytest.raises(CheckpointError, match=r"vision_tower/config.json .*num_hidden_layers must be"):
            load(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_beams", 5000),
        ("num_return_sequences", 2),
        ("max_new_tokens", 10**18),
        ("eos_token_id", 10**6),
        ("eos_token_id", ["x"]),
        ("temperature", "hot"),
        ("penalty_alpha", 0.6),
        ("assistant_early_exit", 3),
        ("cache_implementation", "quantized"),
        ("return_dict_in_generate", True),
        ("constraints", [1]),
        ("stop_strings", "x"),
        ("watermarking_config", {"a": 1}),
    ],
)
def test_absurd_generation_settings(tmp_path, field, value):
    for folder in (small(tmp_path), golden(tmp_path)):
        put(folder / "generation_config.json", value, field)
        with quickly(), pytest.raises(CheckpointError, match=rf"generation_config\.json: {field} "):
            AviotForConditionalGeneration.from_pretrained(folder)


def test_generation_settings_that_are_kept(tmp_path):
    folder = small(tmp_path)
    chosen = {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05, "eos_token_id": [0, 2]}
    (folder / "generation_config.json").write_text(json.dumps(chosen | {"unknown": 1, "output_scores": False}))
    made = AviotForConditionalGeneration.from_pretrained(folder).generation_config
    assert {name: getattr(made, name) for name in chosen} == chosen
    assert not hasattr(made, "unknown")
    (folder / "generation_config.json").unlink()
    put(folder / "config.json", 5000, "num_beams")
    assert AviotForConditionalGeneration.from_pretrained(folder).generation_config.num_beams in (None, 1)
    assert AviotForConditionalGeneration.from_pretrained(folder).generation_config.eos_token_id == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [("fps", 1e308), ("fps", True), ("max_frames", 10**9), ("max_frames", None), ("image_size", 100_000)],
)
def test_absurd_sampling(tmp_path, field, value):
    folder = small(tmp_path)
    put(folder / "processor_config.json", value, field)
    with quickly(), pytest.raises(CheckpointError, match=rf"processor_config\.json: {field} must be"):
        AviotProcessor.from_pretrained(folder)
    assert AviotProcessor.from_pretrained(embedded_model(), max_frames=10**9).max_frames == 10**9  # a caller may


def test_unknown_fields_have_no_effect(tmp_path):
    """Attributes of transformers' configs, some of them methods, do not change."""
    folder = small(tmp_path)
    for keys in ((), ("text_config",), ("vision_config",)):
        for name, value in {
            "to_dict": 1,
            "num_labels": 10**10,
            "return_dict": False,
            "per_layer_config": {"0": 1},
        }.items():
            put(folder / "config.json", value, *keys, name)
    put(folder / "config.json", "RagTokenizer", "tokenizer_class")
    processor, model = load(folder)
    frames = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    session = VideoLM(model, processor).open(frames, source_fps=2.0)
    assert session.ask("What?", max_new_tokens=1).frames == 4


def fields_of(values, before=()):
    for name, value in values.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from fields_of(value, (*before, name))


def refusal(folder, loaded):
    """Return a loader's message if it refuses a folder; other errors than a refusal propagate."""
    try:
        loaded.from_pretrained(folder)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("made", "file"),
    [
        (golden, "config.json"),
        (golden, "vision_tower/config.json"),
        (small, "config.json"),
        (small, "processor_config.json"),
        (small, "generation_config.json"),
        (small, "tokenizer_config.json"),
    ],
)
def test_every_field_with_a_wrong_value_loads_or_is_refused_in_a_sentence(tmp_path, made, file):
    """Each field gets a different wrong value, so that every value is tried on many fields."""
    folder = made(tmp_path)
    original = (folder / file).read_text()
    for number, keys in enumerate(fields_of(json.loads(original))):
        put(folder / file, NASTY[number % len(NASTY)], *keys)
        said = refusal(folder, AviotProcessor)
        if file != "tokenizer_config.json":
            said += refusal(folder, AviotForConditionalGeneration)
        assert said.isprintable(), keys
        assert len(said) < 2000, keys
        (folder / file).write_text(original)


def test_names_of_tensors_and_files_do_not_steer_a_terminal(tmp_path):
    folder = golden(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {f"model.{ESCAPES}": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="unexpected") as refused:
        load(folder)
    assert str(refused.value).isprintable()
    (folder / "model.safetensors").rename(folder / f"{ESCAPES}.bin")
    with pytest.raises(CheckpointError, match="as pickles") as refused:
        AviotForConditionalGeneration.from_pretrained(folder)
    assert str(refused.value).isprintable()
    for name in (f"{ESCAPES}.safetensors", "x" * 5000 + ".safetensors", "/etc/passwd", "a.bin", "\0", 3, None):
        put(folder / "model.safetensors.index.json", {"a": name}, "weight_map")
        with pytest.raises(CheckpointError, match="is not the file name of a shard") as refused:
            AviotForConditionalGeneration.from_pretrained(folder)
        assert str(refused.value).isprintable()


def test_many_wrong_tensors_are_counted_rather_than_listed(tmp_path):
    folder = golden(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {f"extra.{number}": torch.zeros(1) for number in range(500)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="and 480 more"):
        load(folder)


def test_headers_larger_than_any_models_are_not_read(tmp_path):
    folder = golden(tmp_path)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 90 * 10**6))
        file.truncate(95 * 10**6)
    with quickly(), pytest.raises(CheckpointError, match=r"its header claims 90,000,000 bytes"):
        load(folder)


def test_weights_that_are_no_floating_numbers(tmp_path):
    folder = golden(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model.norm.weight is stored as I8; expected one of F64, F32"):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "processor_config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 100_000, "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("{" + " " * 5 * 2**20 + "}", "more than the 4,194,304 that such a file can need"),
        ("\udcff", "not JSON"),
    ],
    ids=["nested", "digits", "large", "bytes"],
)
def test_files_that_no_parser_should_meet(tmp_path, name, text, sentence):
    folder = small(tmp_path)
    (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    with quickly(), pytest.raises(CheckpointError, match=sentence):
        load(folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"normalizer": {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}}, "at most 8 letters"),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}] * 40,
                }
            },
            "normalizer may replace text at most 2 times",
        ),
        ({"decoder": {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}}, "decoder may replace"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "Precompiled"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}}, "cannot be read"),
        ({"model": {"type": "BPE", "vocab": {"a": 980}, "merges": []}}, "the token 980, but the decoder embeds 980"),
        ({"padded": "x" * 2_000_000}, "more than the .* that such a file can need"),
        ({"normalizer": {"type": "Nonsense"}}, "cannot be read"),
    ],
    ids=["long", "often", "decoder", "precompiled", "unknown-words", "large-id", "large-file", "nonsense"],
)
def test_tokenizers_that_make_text_grow_or_do_not_fit(tmp_path, change, sentence):
    folder = small(tmp_path)
    stored = json.loads((folder / "tokenizer.json").read_text())
    if "model" in change:
        stored["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(stored | change))
    with quickly(), pytest.raises(CheckpointError, match=sentence):
        AviotProcessor.from_pretrained(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokenizer_class", "RagTokenizer"),
        ("tokenizer_class", ["x"]),
        ("vocab_file", "/etc/passwd"),
        ("tokenizer_file", "../../secret.json"),
        ("fast_tokenizer_files", ["tokenizer.4.0.json"]),
        ("gguf_file", "x.gguf"),
        ("init_inputs", ["/etc/passwd"]),
        ("eos_token", ""),
        ("pad_token", 3),
        ("model_max_length", "x"),
    ],
)
def test_tokenizer_settings_that_lead_elsewhere(tmp_path, field, value):
    folder = small(tmp_path)
    put(folder / "tokenizer_config.json", value, field)
    with pytest.raises(CheckpointError, match=rf"tokenizer_config\.json: '?{field}"):
        AviotProcessor.from_pretrained(folder)


def test_a_tokenizer_that_gives_up_on_a_question(tmp_path):
    """The search for a pattern explodes on some texts; tokenizers stops it with an error that is not an Exception."""
    folder = small(tmp_path)
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    put(folder / "tokenizer.json", split, "pre_tokenizer")
    processor = AviotProcessor.from_pretrained(folder)
    with pytest.raises(CheckpointError, match="tokenizer cannot encode the text"):
        processor._encode("a" * 60 + "!")


def test_the_command_line_says_it_in_a_sentence(tmp_path):
    frames = tmp_path / "frames"
    frames.mkdir()
    for number in range(2):
        Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(frames / f"{number}.png")
    folder = golden(tmp_path)
    put(folder / "config.json", ESCAPES, "hidden_act")
    for command in (
        ["answer", str(frames), "-q", "What?", "--model", str(folder)],
        ["convert", str(folder), str(tmp_path / "target")],
    ):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "hidden_act must be the name of an activation" in done.stderr
        assert done.stderr.strip().isprintable()


def test_a_given_config_is_compared_with_the_weights_too():
    config = AviotForConditionalGeneration.from_pretrained(GOLDEN).config
    config.text_config.num_hidden_layers = 10_000_000
    with (
        quickly(),
        pytest.raises(CheckpointError, match="num_hidden_layers is 10,000,000, but the weights hold 2 layers"),
    ):
        AviotForConditionalGeneration.from_pretrained(GOLDEN, config=config)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_decoders_of_the_family_come_back_as_they_were_saved(tmp_path, kind):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {"model_type": kind, **sizes, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 20}
    config = AviotConfig(
        {**sizes, "image_size": 6, "patch_size": 2}, text, {"cost_dim": 8, "regions": [[1, 1], [3, 3]]}
    )
    model = AviotForConditionalGeneration(config)
    model.save_pretrained(tmp_path)
    again = AviotForConditionalGeneration.from_pretrained(tmp_path)
    saved = model.config.text_config.to_dict()
    assert {name: again.config.text_config.to_dict()[name] for name in saved} == saved | {"dtype": "float32"}
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())
