"""The log of a short run, and experiment trackers that are unknown or not installed."""

import pytest
from tiny import config, lines, write_settings
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from typer.testing import CliRunner

from aviot.cli import app
from aviot.training.config import TRACKERS, LoggingConfig, require_trackers
from aviot.training.run import train


def test_a_run_shorter_than_the_interval_logs_its_first_and_last_step(made, capfd):
    chosen = {"steps": 3, "global_batch": 1}
    last = train(config(made, output=str(made / "three"), optimization=chosen, logging={"every": 10}))
    assert [line["step"] for line in lines(last)] == [1, 3]
    printed = capfd.readouterr().err
    assert f"step 3/3: loss {lines(last)[-1]['loss']:.4f}" in printed


def test_a_tracker_that_is_not_installed_is_rejected_first(made, monkeypatch):
    monkeypatch.setattr("aviot.training.run.Corpus", None)
    path = str(write_settings(made, "tracked"))
    done = CliRunner().invoke(app, ["train", "--config", path, "--set", "logging.report_to=wandb"])
    assert done.exit_code == 2
    assert done.stderr.strip() == (
        "aviot: logging.report_to is wandb, which needs the package wandb, and that is not installed; "
        "pip install wandb, or set logging.report_to=none"
    )
    with pytest.raises(ValueError, match="pip install mlflow"):
        train(config(made, output=str(made / "tracked"), logging={"report_to": ["tensorboard", "mlflow"]}))
    assert not (made / "tracked").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wand", "must be none or some of azure_ml.*, got 'wand'; correct the name"),
        ("comet_ml", "needs the package comet_ml.*pip install comet-ml, or set"),
        ("dagshub", "needs the package dagshub"),
    ],
)
def test_wrong_trackers_are_rejected(name, message):
    with pytest.raises(ValueError, match=message):
        require_trackers(LoggingConfig(report_to=name).report_to)


def test_every_tracker_of_the_trainer_is_known():
    assert set(TRACKERS) == set(INTEGRATION_TO_CALLBACK)
    require_trackers(LoggingConfig().report_to)


@pytest.mark.parametrize("none", ["none", [], ["none"], None])
def test_no_tracker(none):
    assert LoggingConfig(report_to=none).report_to == ()
    with pytest.raises(ValueError, match="report_to must be names of trackers"):
        LoggingConfig(report_to=[3])
