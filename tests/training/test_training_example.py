"""The fine-tuning example, from data to checkpoint to evaluation, at its smallest size."""

import importlib.util
import json
import sys

import pytest
from tiny import ROOT

from aviot.bundled import embedded_model
from aviot.training import saving
from aviot.training.config_files import read_config

FOLDER = ROOT / "examples" / "finetune"


def load_example():
    spec = importlib.util.spec_from_file_location("finetune", FOLDER / "finetune.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_it_runs_from_data_to_checkpoint_to_evaluation(tmp_path, capsys):
    before, after = load_example().main([str(tmp_path), "--scenes", "2", "--steps", "1"])
    assert before == 0.0  # the bundled model answers with one word
    assert 0.0 <= after <= 1.0
    (record, _) = map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines())
    assert record["messages"][0]["content"].startswith("<video>What colour is the ")
    assert record["messages"][1]["content"].split()[0] == "The"
    assert (tmp_path / record["videos"][0]).is_file()
    (checkpoint,) = saving.checkpoints(tmp_path / "run").values()
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    assert [line["held_out_examples"] for line in history if "held_out_loss" in line] == [2]
    assert json.loads((tmp_path / "after" / "summary.json").read_text())
    printed = capsys.readouterr().out
    assert printed.count("$ aviot evaluate") == 2
    assert "$ aviot train --config" in printed
    assert "0% before" in printed
    with pytest.raises(SystemExit, match="2"):
        load_example().main([str(tmp_path), "--scenes", "2", "--steps", "1"])
    assert f"{tmp_path} holds a run of this example; remove it, or name another folder" in capsys.readouterr().err


def test_its_configuration_and_its_script_agree(monkeypatch):
    monkeypatch.chdir(ROOT)
    config = read_config(FOLDER / "config.yaml", [f"model={embedded_model()}"])
    example = load_example()
    assert config.video.max_frames == example.FRAMES
    assert config.optimization.steps == config.saving.every == 24
    assert f"checkpoint-{config.optimization.steps}" in (FOLDER / "README.md").read_text()
    assert "finetune" not in sys.modules
