"""Runs of the demo model with other switches of their compressor, and the threshold that they learn."""

import json

import pytest
import torch

from aviot.models import AviotForConditionalGeneration
from aviot_lab.demo_model import log
from aviot_lab.demo_model import train as training
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.export import export
from aviot_lab.demo_model.networks import configure, switches_of
from aviot_lab.demo_model.state import STATE

PIECE = {"device": torch.device("cpu"), "seconds": 0, "unexamined": True}
STEPS = Curriculum((Phase("compressed", 3, ((1, 16),), (1e-3, 1e-3)),))


def allocation_of(folder):
    return json.loads((folder / STATE).read_text())["compressor"]["allocation"]


def test_a_run_learns_its_threshold_and_exports_it(tmp_path, monkeypatch, narrow):
    for module in (training, log):
        monkeypatch.setattr(module, "REPORT", 1)
    run, options = tmp_path / "run", training.TrainOptions(switches="allocation=calibrated fusion=equal", **PIECE)
    found = []
    for _ in range(2):
        training.train(run, STEPS, options)
        found.append(allocation_of(run))
    assert [each["rule"] for each in found] == ["calibrated"] * 2
    thresholds = [each["evidence_threshold"] for each in found]
    assert 0 < thresholds[0] != thresholds[1] > 0
    assert thresholds[1] == pytest.approx(thresholds[0], rel=0.5)  # it went on from there: a step is small
    export(run, tmp_path / "model", STEPS)
    exported = AviotForConditionalGeneration.from_pretrained(tmp_path / "model").model.compressor.config
    assert (exported.allocation.rule, exported.fusion) == ("calibrated", "equal")
    assert exported.allocation.evidence_threshold == thresholds[1]
    assert "RUN --switches allocation=calibrated fusion=equal`" in (tmp_path / "model" / "README.md").read_text()


def test_a_run_keeps_its_switches(tmp_path, monkeypatch, narrow):
    monkeypatch.setattr(training, "REPORT", 1)
    training.train(tmp_path, STEPS, training.TrainOptions(switches="pilot=unbalanced", **PIECE))
    with pytest.raises(
        ValueError, match="was trained with pilot=unbalanced; go on with --switches pilot=unbalanced, or"
    ):
        training.train(tmp_path, STEPS, training.TrainOptions(**PIECE))
    assert allocation_of(tmp_path)["evidence_threshold"] is None  # a printed allocation asks for no evidence


def test_switches_are_read_and_checked():
    assert switches_of("allocation=calibrated question_cost=false") == {
        "allocation": "calibrated",
        "question_cost": False,
    }
    for text in ("allocation", "allocation=", "cost_dim=4"):
        with pytest.raises(ValueError, match=f"a switch is NAME=VALUE with a name of question_cost, .*, got {text}"):
            switches_of(text)
    with pytest.raises(ValueError, match="a model without a compressor has no switches, got fusion; leave them out"):
        configure(torch.nn.Linear(1, 1), None, {"fusion": "equal"})
