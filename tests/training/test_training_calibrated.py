"""The threshold of a calibrated allocation follows the questions of a run, and is saved, resumed and logged with it."""

import json
import shutil

import pytest
import torch
from adapting import config as adapter_config
from adapting import save_model, save_records
from tiny import config, lines, start

from aviot.config import AllocationConfig, CompressorConfig
from aviot.methods.aviot.allocation import running_threshold
from aviot.models import AviotForConditionalGeneration
from aviot.training.run import train

FAST = {"rule": "calibrated", "evidence_rate": 0.1, "evidence_quantile": 0.3}
CHANGES = {"compressor": {"allocation": FAST}, "optimization": {"steps": 4, "micro_batch": 2}}


def allocation_of(checkpoint):
    """Return what the config of a checkpoint, of a model or an adapter, says of the allocation."""
    (path,) = (checkpoint / name for name in ("config.json", "aviot_adapter.json") if (checkpoint / name).is_file())
    values = json.loads(path.read_text())
    group = values.get("compressor_config") or values["compressor"]
    return CompressorConfig.from_dict(group).allocation


def assert_same(one, other):
    assert allocation_of(one) == allocation_of(other)
    assert [line["loss"] for line in lines(one)] == [line["loss"] for line in lines(other)]
    for path in one.glob("**/*.safetensors"):
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes(), path.name


def resumed_from_half(last, chosen, output):
    """Return the last checkpoint of the same run, resumed from the checkpoint before it."""
    shutil.copytree(last.parent, output)
    shutil.rmtree(output / last.name)
    return train(type(chosen).from_dict(chosen.to_dict() | {"output": str(output)}), resume="last-good")


@pytest.fixture(scope="module")
def calibrated(made):
    """A run with a calibrated allocation, and the evidence of its questions, step by step."""
    steps, forward = {}, AviotForConditionalGeneration.forward

    def spied(self, **inputs):
        out = forward(self, **inputs)
        steps.setdefault(inputs["step"], []).extend(each.evidence.item() for each in out.compressions)
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AviotForConditionalGeneration, "forward", spied)
        chosen = config(made, output=str(made / "calibrated"), **CHANGES)
        return chosen, train(chosen), steps


def test_the_threshold_is_the_running_quantile_of_the_runs_questions(calibrated):
    _, last, steps = calibrated
    assert [len(steps[step]) for step in range(4)] == [4] * 4
    threshold, expected = None, []
    for step in range(4):
        threshold = running_threshold(threshold, sorted(steps[step]), AllocationConfig(**FAST))
        expected.append(threshold)
    assert len(set(expected)) == 4
    assert [line["evidence_threshold"] for line in lines(last)] == expected
    assert allocation_of(last) == AllocationConfig(**FAST, evidence_threshold=expected[-1])
    assert allocation_of(last.with_name("checkpoint-2")).evidence_threshold == expected[1]


def test_a_checkpoint_allocates_by_its_threshold(calibrated):
    model = AviotForConditionalGeneration.from_pretrained(calibrated[1], dtype=torch.float32).eval()
    compressor = model.model.compressor
    threshold = compressor.config.allocation.evidence_threshold
    x, question = torch.randn(12, 36, 16), torch.randn(16)
    with torch.no_grad():
        relevances = [scale * threshold * torch.linspace(0, 1, 12) for scale in (0.99, 1.01)]
        budgets = [compressor(x, question=question, relevance=each, supports=6).budgets for each in relevances]
    assert len(set(budgets[0][0])) < len(set(budgets[1][0]))


def test_resuming_is_exact(calibrated, tmp_path):
    chosen, last, _ = calibrated
    assert_same(resumed_from_half(last, chosen, tmp_path / "again"), last)


@pytest.mark.slow
def test_resuming_with_adapters_is_exact(made, tmp_path):
    """Where weights come from the base model, the threshold still comes from the checkpoint."""
    chosen = config(made, output=str(tmp_path / "lora"), lora={"rank": 2}, **CHANGES)
    last = train(chosen)
    assert allocation_of(last).evidence_threshold > 0
    assert_same(resumed_from_half(last, chosen, tmp_path / "again"), last)


def test_resuming_another_familys_adapter_is_exact(tmp_path):
    (tmp_path / "set").mkdir()
    save_records(tmp_path / "set")
    save_model("qwen2.5-vl", tmp_path / "qwen2.5-vl")
    changes = {"output": str(tmp_path / "run"), "saving": {"every": 2}, "compressor": {"allocation": FAST}}
    chosen = adapter_config(tmp_path, "qwen2.5-vl", **changes)
    last = train(chosen)
    assert allocation_of(last).evidence_threshold > 0
    assert_same(resumed_from_half(last, chosen, tmp_path / "again"), last)


def test_the_threshold_does_not_depend_on_the_number_of_processes(made, calibrated):
    done = start(made, "calibrated-two", processes=2, **CHANGES)
    assert [one.returncode for one in done] == [0, 0], "".join(one.stderr[-4000:] for one in done)
    found = [line["evidence_threshold"] for line in lines(made / "calibrated-two" / "checkpoint-4")]
    assert found == pytest.approx([line["evidence_threshold"] for line in lines(calibrated[1])], rel=1e-4)


def test_printed_runs_have_no_threshold(run):
    assert allocation_of(run[1]) == AllocationConfig()
    assert "evidence_threshold" not in lines(run[1])[0]


def test_a_models_own_compressor_keeps_what_is_no_switch(made):
    with pytest.raises(ValueError, match=r"compressor must be left out, but for its switches .* got cost_dim$"):
        train(config(made, output=str(made / "refused"), compressor={"cost_dim": 16, "allocation": "calibrated"}))
