"""The small model's training step is the model's own forward pass, and a run goes on where it stopped."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from aviot import bundled as embedded
from aviot.cli import app
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.utils.journal import read_rows
from aviot_lab.demo_model import log, state
from aviot_lab.demo_model import train as training
from aviot_lab.demo_model.architecture import new_model, small_processor
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.world import World, WorldConfig


@pytest.fixture(scope="module")
def model(tokenizer):
    return new_model(tokenizer, seed=1)


@pytest.fixture(scope="module")
def batch(tokenizer):
    world = World(WorldConfig())
    scene = world.scene("train", 5, 16)
    rows = [(scene, [(q.open, q.answer)]) for q in world.questions(scene)[:2]]
    return BatchWriter(tokenizer).conversations(rows, ratio=8.0)


def test_losses_are_those_of_the_models_own_forward(model, batch):
    """Rows padded on the right, without a mask, against the forward pass that masks them."""
    with torch.no_grad():
        u = encode(model, batch.plans, batch.videos)
        found = answer(model, u, batch, ratio=batch.ratio)
        ids = torch.cat((batch.prefix, torch.tensor([model.config.video_token_id]))).expand(len(batch.ids), -1)
        shift = ids.shape[1]
        asked = [row.nonzero().flatten() for row in batch.question_mask]
        out = model(
            input_ids=torch.cat((ids, batch.ids), 1),
            labels=torch.cat((torch.full_like(ids, -100), batch.labels), 1),
            question_span=torch.tensor([[int(row[0]) + shift, int(row[-1]) + 1 + shift] for row in asked]),
            video_index=batch.video,
            encoded=list(u),
            ratio=batch.ratio,
        )
    assert found.language.item() == pytest.approx(out.lm_loss.item(), rel=1e-5)
    assert found.transport.item() == pytest.approx(out.transport_loss.item(), rel=1e-5)


def test_tokens_count_by_their_weights(model, batch):
    with torch.no_grad():
        u = encode(model, batch.plans, batch.videos)

        def language(*rows: float) -> float:
            weighed = replace(batch, weights=batch.weights * torch.tensor(rows)[:, None])
            return answer(model, u, weighed, ratio=None).language.item()

        each = language(1, 0), language(0, 1)
        tokens = (batch.labels != -100).sum(1).tolist()
        parts = tokens[0], 0.2 * tokens[1]
        expected = (each[0] * parts[0] + each[1] * parts[1]) / sum(parts)
        assert each[0] != pytest.approx(each[1], rel=1e-3)
        assert language(1, 0.2) == pytest.approx(expected, rel=1e-5)


def test_the_model_fits_the_package_and_loads_like_any_other(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    small_processor(tokenizer).save_pretrained(tmp_path)
    assert 2 * sum(weight.numel() for weight in model.parameters()) < 16e6  # bytes in bfloat16
    again = AviotForConditionalGeneration.from_pretrained(tmp_path)
    processor = AviotProcessor.from_pretrained(tmp_path)
    assert processor.image_size == 108
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)
    frames = torch.randint(0, 256, (17, 90, 160, 3), dtype=torch.uint8).numpy()
    given = processor(frames, "Was there a red star?", source_fps=2)
    said = again.generate(**given, ratio=8.0, max_new_tokens=2, do_sample=False)
    assert said.shape == (1, 2)


def test_commands_take_the_packages_model_where_none_is_named(model, tokenizer, tmp_path, monkeypatch):
    folder = tmp_path / "weights"
    monkeypatch.setattr(embedded, "FOLDER", folder)
    frames = tmp_path / "frames"
    frames.mkdir()
    for number in range(3):
        Image.new("RGB", (64, 48), (40 * number, 0, 0)).save(frames / f"{number}.png")
    asked = ["answer", str(frames), "-q", "Was there a red star?", "--max-new-tokens", "2", "--json", "--device", "cpu"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 2
    assert "this copy of the package has no bundled demo model; name a checkpoint (--model)" in refused.output
    model.save_pretrained(folder)
    small_processor(tokenizer).save_pretrained(folder)
    answered = CliRunner().invoke(app, asked)
    assert answered.exit_code == 0, answered.output
    assert json.loads(answered.stdout)["frames"] == 3
    assert "knows its own world of drawn shapes alone" in answered.stderr
    named = CliRunner().invoke(app, [*asked, "--model", str(folder)])
    assert "drawn shapes" not in named.stderr


def _tensors(run):
    return {name: tensor for file in run.glob("state-*.safetensors") for name, tensor in load_file(file).items()}


def test_a_run_that_has_nothing_left_to_do_is_refused(tmp_path, monkeypatch, narrow):
    """Otherwise a baseline fine-tuned from a finished run would be that run, and one from a typo a new one."""
    monkeypatch.setattr(training, "EVALUATED_FRAMES", ())
    curriculum = Curriculum(
        (Phase("patches", 1, ((2, 1),), (1e-3, 1e-3)), Phase("pictures", 1, ((2, 1),), (1e-3, 0.0)))
    )
    cpu, run = torch.device("cpu"), tmp_path / "run"
    with pytest.raises(ValueError, match=r"nowhere has no state\.json; --start must name the directory of a run"):
        training.train(tmp_path / "tuned", curriculum, training.TrainOptions(device=cpu, start=tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="run is at step 0, so none is left up to 0"):
        training.train(run, curriculum, training.TrainOptions(device=cpu, before="patches"))
    assert not run.exists()
    compressing = Curriculum(
        (Phase("pictures", 1, ((1, 1),), (1e-3, 1e-3)), Phase("compressed", 2, ((1, 16),), (1e-3, 0.0)))
    )
    monkeypatch.setattr(training, "REPORT", 1)
    for _ in range(2):
        training.train(tmp_path / "compressing", compressing, training.TrainOptions(device=cpu, seconds=0))
    with pytest.raises(ValueError, match="is at step 2 and was trained on compressed videos from step 1; --start"):
        training.train(
            tmp_path / "tuned",
            compressing,
            training.TrainOptions(device=cpu, start=tmp_path / "compressing", compressor="uniform"),
        )
    training.train(run, curriculum, training.TrainOptions(device=cpu))
    for folder, start in ((run, None), (tmp_path / "tuned", run)):
        with pytest.raises(ValueError, match="run is at step 2, so none is left up to 2"):
            training.train(folder, curriculum, training.TrainOptions(device=cpu, start=start))


def test_a_run_is_evaluated_on_the_validation_split(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(training, "accuracy", lambda model, tokenizer, world, **how: given.append((world, how)) or {})
    training.evaluate(None, None, 5, 40, log.Log(tmp_path), [("none", None)])
    assert [how["frames"] for _, how in given] == [16, 64]
    assert {(world.config.seed, how["split"]) for world, how in given} == {(5, "validation")}


def test_a_run_keeps_its_compressor_and_what_it_began_from_its_tokens(tmp_path, monkeypatch, narrow):
    monkeypatch.setattr(training, "REPORT", 1)
    curriculum = Curriculum((Phase("pictures", 4, ((1, 1),), (1e-3, 1e-3)),))
    piece = {"device": torch.device("cpu"), "seconds": 0, "unexamined": True}
    training.train(tmp_path / "run", curriculum, training.TrainOptions(**piece))
    shutil.copytree(tmp_path / "run" / "tokenizer", tmp_path / "tuned" / "tokenizer")  # of a first try, killed
    kept, tuned = (tmp_path / name / "tokenizer" / "tokenizer.json" for name in ("run", "tuned"))
    pieces = json.loads(kept.read_text())
    numbers = pieces["model"]["vocab"]
    numbers["?"], numbers["!"] = numbers["!"], numbers["?"]  # as if another version had numbered them
    kept.write_text(json.dumps(pieces))
    training.train(
        tmp_path / "tuned", curriculum, training.TrainOptions(start=tmp_path / "run", compressor="uniform", **piece)
    )
    assert json.loads(tuned.read_text())["model"]["vocab"] == numbers
    with pytest.raises(ValueError, match="tuned was trained with uniform; go on with --compressor uniform, or name"):
        training.train(tmp_path / "tuned", curriculum, training.TrainOptions(**piece))
    with pytest.raises(ValueError, match="tuned has a run of its own; leave --start out to go on with it, or name"):
        training.train(
            tmp_path / "tuned", curriculum, training.TrainOptions(start=tmp_path / "run", compressor="uniform", **piece)
        )
    lines = tmp_path / "tuned" / "log.jsonl"
    lines.write_text(lines.read_text() + '{"step": 4, "lang')  # torn by a kill
    training.train(tmp_path / "tuned", curriculum, training.TrainOptions(compressor="uniform", **piece))
    assert [line["ended"] for line in read_rows(lines) if "ended" in line] == [2, 3]


def test_a_run_is_evaluated_with_its_own_compressor():
    curriculum = Curriculum(
        (Phase("whole", 2, ((2, 16),), (1e-3, 1e-3)), Phase("compressed", 2, ((2, 16),), (1e-3, 0.0)))
    )
    assert training.settings_after(curriculum, 2, "uniform") == [("none", None)]
    own = [("none", None), ("uniform", 2.0), ("uniform", 4.0), ("uniform", 10.0)]
    assert training.settings_after(curriculum, 3, "uniform") == [*own, ("aviot", 4.0), ("segment-mean", 4.0)]
    assert training.settings_after(curriculum, 4, "aviot")[-2:] == [("aviot", 10.0), ("segment-mean", 4.0)]


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch, narrow):
    """Three steps in one piece and in three: the same terms and weights, but for moments rounded in between."""
    for module in (training, log):
        monkeypatch.setattr(module, "REPORT", 1)
    monkeypatch.setattr(state, "FILE_BYTES", 2**17)  # so that it takes several files, as the small model's own
    curriculum = Curriculum(
        (
            Phase("patches", steps=1, batches=((2, 1),), rates=(1e-3, 1e-3)),
            Phase("pictures", steps=2, batches=((2, 1),), rates=(1e-3, 1e-3)),
        )
    )
    cpu = torch.device("cpu")
    training.train(tmp_path / "whole", curriculum, training.TrainOptions(device=cpu, unexamined=True))
    for _ in range(3):
        training.train(tmp_path / "pieces", curriculum, training.TrainOptions(device=cpu, seconds=0, unexamined=True))
    logs = [[json.loads(line) for line in (tmp_path / name / "log.jsonl").open()] for name in ("whole", "pieces")]
    assert [line["began"] for line in logs[1] if "began" in line] == [0, 1, 2]
    assert [line["ended"] for line in logs[1] if "ended" in line] == [1, 2, 3]
    assert len({line["data"] for lines in logs for line in lines if "began" in line}) == 1
    runs = [[line for line in lines if "step" in line] for lines in logs]
    assert [line["step"] for line in runs[1]] == [1, 2, 3]
    for one, other in zip(*runs, strict=True):
        assert one["task"] == other["task"]
        assert one["naming"] == pytest.approx(other["naming"], abs=1e-4)
    assert runs[0][0]["patches"] == runs[1][0]["patches"]
    assert len(list((tmp_path / "pieces").glob("state-3-*"))) > 2
    weights = [_tensors(tmp_path / name) for name in ("whole", "pieces")]
    assert not list((tmp_path / "pieces").glob("state-2-*"))  # the older piece's
    decoder = "model.model.language_model"
    for name in (f"weight.{decoder}.embed_tokens.weight", f"weight.{decoder}.layers.0.mlp.up_proj.weight"):
        whole, pieces = (found[name] for found in weights)
        assert (whole - pieces).square().mean().sqrt() < 1e-6  # Muon lets a few entries feel their rounding tenfold
    assert f"momentum_buffer.{decoder}.layers.0.mlp.up_proj.weight" in weights[1]
