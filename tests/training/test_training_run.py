"""A run from its configuration to its checkpoints: its output, the errors it reports, and its end."""

import json
import subprocess
import sys

import pytest
import torch
import yaml
from tiny import config, lines, settings
from transformers import TrainerCallback
from typer.testing import CliRunner

from aviot.cli import app
from aviot.data import DataError
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.training import saving
from aviot.training.loss import TrainingStopped
from aviot.training.run import train
from aviot.training.trainer import AviotTrainer

TERMS = ("temporal", "regional", "continuity", "variation", "balance", "entropy")
LEVELS = ("global", "medium", "local")


def losses(checkpoint):
    return [line["loss"] for line in lines(checkpoint)]


def test_the_checkpoint_can_answer(run, made):
    _, last = run
    model = AviotForConditionalGeneration.from_pretrained(last).eval()
    processor = AviotProcessor.from_pretrained(last)
    tokens = model.generate(**processor(str(made / "set" / "0.mp4"), "What is it?"), ratio=4.0, max_new_tokens=2)
    assert tokens.shape[0] == 1
    assert (processor.fps, processor.max_frames) == (2.0, 224)
    start = AviotForConditionalGeneration.from_pretrained(made / "start").state_dict()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, start[name])}
    assert changed
    assert not any("vision_tower" in name for name in changed)


def test_only_the_newest_checkpoints_are_kept(run):
    _, last = run
    assert list(saving.checkpoints(last.parent)) == [3, 4]
    assert not list(last.parent.glob(".*"))
    assert not list(last.glob("*.bin"))


def test_everything_is_logged(run):
    _, last = run
    (*_, line) = lines(last)
    terms = {f"transport/{name}" for name in TERMS}
    gates = {f"gate/{name}" for name in LEVELS}
    speeds = {"ratio", "tokens_per_second", "videos_per_second", "data_wait", "memory_gib", "failed_examples"}
    assert terms | gates | speeds | {"loss", "lm_loss", "transport_loss", "budget_entropy"} <= set(line)
    assert line["loss"] == pytest.approx(line["lm_loss"] + line["transport_loss"], rel=1e-5)
    weights = {"regional": 1.0, "continuity": 0.01, "variation": 0.001, "balance": 0.5, "entropy": 0.5, "temporal": 1.0}
    total = sum(weight * line[f"transport/{name}"] for name, weight in weights.items())
    assert line["transport_loss"] == pytest.approx(total, rel=1e-5)
    assert sum(line[name] for name in gates) == pytest.approx(1.0, rel=1e-5)
    assert 2 <= line["ratio"] <= 10
    assert line["epoch"] == pytest.approx(16 / 12)


def test_everything_is_in_tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, last = run
    (events,) = {path.parent for path in last.parent.rglob("events.out.tfevents.*")}
    board = EventAccumulator(str(events)).Reload()
    assert {"train/loss", "train/lm_loss", "train/transport/temporal", "train/gate/local"} <= set(
        board.Tags()["scalars"]
    )
    assert [event.step for event in board.Scalars("train/budget_entropy")] == [1, 2, 3, 4]


def test_the_run_folder_records_the_run(run):
    _, last = run
    folder = last.parent
    assert yaml.safe_load((folder / "config.yaml").read_text())["optimization"]["steps"] == 4
    (entry,) = json.loads((folder / "run.json").read_text())
    assert {"command", "commit", "versions", "machine", "data_fingerprint", "processes"} <= set(entry)
    assert entry["examples"] == 12
    assert entry["versions"]["torch"] == torch.__version__


def test_a_finished_run_is_not_run_again(run):
    chosen, last = run
    before = last.stat().st_mtime_ns
    reports = []
    assert train(chosen, resume=True, report=reports.append) == last
    assert reports == [f"the run is complete: {last}"]
    assert last.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="holds checkpoint-4; call train with resume=True"):
        train(chosen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 3}, "seed was 0, is 3"),
        ({"optimization": {"global_batch": 2}}, "optimization.global_batch was 4, is 2"),
        ({"optimization": {"steps": 8}}, "optimization.steps was 4, is 8"),
        ({"stage": "compressor"}, "stage was 'joint', is 'compressor'"),
        ({"data": {"ratios": [2.0]}}, "data.ratios was"),
        ({"lora": {"rank": 2}}, "lora.rank was None, is 2"),
    ],
)
def test_other_settings_are_not_resumed(run, made, changes, message):
    chosen, _ = run
    with pytest.raises(ValueError, match=message) as refusal:
        train(config(made, output=chosen.output, **changes), resume=True)
    assert "cannot be resumed with other settings" in str(refusal.value)


def test_other_data_is_not_resumed(run, made, tmp_path):
    chosen, _ = run
    records = json.loads((made / "set" / "train.json").read_text())
    (tmp_path / "train.json").write_text(json.dumps(records[1:]))
    data = {"records": str(tmp_path / "train.json"), "video_root": str(made / "set")}
    with pytest.raises(ValueError, match="data fingerprint was"):
        train(config(made, output=chosen.output, data=data), resume=True)


def test_a_missing_model_is_not_downloaded(made, tmp_path, monkeypatch):
    monkeypatch.setattr("aviot.backbones.checkpoints.folder.snapshot_download", None)
    with pytest.raises(
        ValueError, match="checkpoints/nowhere: no such folder; name the directory of a checkpoint on this machine"
    ):
        train(config(made, model="checkpoints/nowhere", output=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_nothing_to_resume(made):
    with pytest.raises(ValueError, match="holds no run to resume; call train with resume=False to start one"):
        train(config(made, output=str(made / "nowhere")), resume=True)


class MakeInfinite(TrainerCallback):
    """A callback that makes a weight infinite after a step."""

    def __init__(self, name, step):
        self.name, self.step = name, step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            dict(model.named_parameters())[self.name].data.fill_(float("inf"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.language_model.norm.weight", r"the loss is not finite \(language model nan"),
        pytest.param("model.position.proj.weight", "the relevance is not finite", marks=pytest.mark.slow),
    ],
)
def test_a_non_finite_loss_ends_the_run(made, name, message):
    """A weight of the decoder shows in the loss; one of the compressor is reported by the compressor itself."""
    chosen = config(made, output=str(made / f"infinite-{name}"))
    with pytest.raises(
        TrainingStopped, match=rf"step 3: .*{message}.*record 'r\d+' \(.*train\.json, element \d+\) at ratio"
    ):
        train(chosen, callbacks=[MakeInfinite(name, 3)])
    assert list(saving.checkpoints(made / f"infinite-{name}")) == [2]
    resumed = train(chosen, resume=True)
    assert len(lines(resumed)) == 4


def test_a_non_finite_gradient_ends_the_run(made, monkeypatch):
    monkeypatch.setattr("transformers.Trainer._clip_grad_norm", lambda self, model: torch.tensor(float("nan")))
    with pytest.raises(TrainingStopped, match="the loss is finite and its gradient is not"):
        train(config(made, output=str(made / "steep")))


def test_the_command_says_how_to_resume_after_a_non_finite_gradient(made, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.Trainer._clip_grad_norm", lambda self, model: torch.tensor(float("nan")))
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(settings(made, output=str(tmp_path / "run"))))
    stopped = CliRunner().invoke(app, ["train", "--config", str(path)])
    assert stopped.exit_code == 1
    assert "To resume from the last checkpoint, add --resume to the same command" in stopped.stderr


def test_unreadable_videos_are_skipped_and_counted(made, tmp_path, caplog):
    records = json.loads((made / "set" / "train.json").read_text())
    records[5]["video"] = "gone.mp4"
    (tmp_path / "train.json").write_text(json.dumps(records))
    data = {"records": str(tmp_path / "train.json"), "video_root": str(made / "set")}
    last = train(config(made, output=str(tmp_path / "run"), data=data))
    assert lines(last)[-1]["failed_examples"] >= 1
    assert "gone.mp4" in caplog.text
    strict = data | {"min_failures": 1, "max_failed_share": 0.0}
    with pytest.raises(DataError, match=r"gone\.mp4"):
        train(config(made, output=str(tmp_path / "strict"), data=strict))


def test_features_are_cached_and_give_the_same_losses(run, made, tmp_path):
    cache = {"folder": str(tmp_path / "features"), "gigabytes": 1}
    first = train(config(made, output=str(tmp_path / "first"), cache=cache))
    files = list((tmp_path / "features").glob("*.safetensors"))
    assert len(files) == 12
    again = train(config(made, output=str(tmp_path / "again"), cache=cache))
    for cached in (first, again):
        assert losses(cached) == pytest.approx(losses(run[1]), abs=1e-5)


@pytest.mark.slow
def test_workers_give_the_same_losses(run, made, tmp_path):
    ahead = train(config(made, output=str(tmp_path / "ahead"), loader={"workers": 1}))
    assert losses(ahead) == losses(run[1])


def test_bfloat16(run, made, tmp_path):
    last = train(config(made, output=str(tmp_path / "run"), precision="bf16"))
    assert losses(last) == pytest.approx(losses(run[1]), rel=0.02)
    model = AviotForConditionalGeneration.from_pretrained(last, dtype=torch.float32)
    start = AviotForConditionalGeneration.from_pretrained(made / "start")
    weight = "model.language_model.norm.weight"
    change = (model.state_dict()[weight] - start.state_dict()[weight]).abs()
    assert 0 < change.max() < 4e-3  # below bfloat16's resolution at 1: the trained weights are float32


def test_adapters_are_merged_and_saved_separately(made, tmp_path):
    from peft import PeftModel

    last = train(config(made, output=str(tmp_path / "run"), lora={"rank": 2, "alpha": 8}))
    merged = AviotForConditionalGeneration.from_pretrained(last)
    start = AviotForConditionalGeneration.from_pretrained(made / "start")
    decoder = PeftModel.from_pretrained(start.model.language_model, last / "adapter").merge_and_unload()
    ours = merged.model.language_model.state_dict()
    for name, tensor in decoder.state_dict().items():
        assert torch.allclose(tensor, ours[name], atol=1e-6), name
    fresh = AviotForConditionalGeneration.from_pretrained(made / "start").state_dict()
    changed = {name for name, tensor in merged.state_dict().items() if not torch.equal(tensor, fresh[name])}
    assert any("q_proj.weight" in name for name in changed)
    assert any("connector" in name for name in changed)
    assert any("compressor" in name for name in changed)
    assert not any("norm" in name or "embed_tokens" in name for name in changed if "language_model" in name)


def test_the_step_drives_the_warm_ups(made, monkeypatch):
    seen = []
    forward = AviotForConditionalGeneration.forward
    monkeypatch.setattr(
        AviotForConditionalGeneration, "forward", lambda self, **k: seen.append(k["step"]) or forward(self, **k)
    )
    monkeypatch.setattr(AviotTrainer, "floating_point_ops", lambda self, inputs: 0)
    train(config(made, output=str(made / "counted"), optimization={"micro_batch": 2}))
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_command(made, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(settings(made, output=str(tmp_path / "run"))))
    command = [sys.executable, "-m", "aviot", "train", "--config", str(path), "--set", "optimization.steps=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "run" / "checkpoint-1")
    assert "step 1/1: loss" in done.stderr
    assert "videos/s" in done.stderr
    wrong = CliRunner().invoke(app, [*command[3:], "--set", "stage=x"])
    assert wrong.exit_code == 2
    assert "stage must be one of" in wrong.stderr
    assert "Traceback" not in wrong.stderr
