"""The loss on held-out records during training: it is the training loss, and does not affect the run."""

import json
from dataclasses import replace

import pytest
import torch
from tiny import config, lines

from aviot.data import BatchLayout, Corpus, DataError
from aviot.training.config_files import Parallelism
from aviot.training.datasets import open_held_out, training_data
from aviot.training.model_setup import load_model, load_processor
from aviot.training.run import train, training_arguments
from aviot.training.trainer import AviotTrainer

SHORT = {"steps": 2, "global_batch": 2, "micro_batch": 2}


@pytest.fixture(scope="module")
def records(made):
    """Return a file of five records of the training set and one whose video does not exist."""
    values = json.loads((made / "set" / "train.json").read_text())[:5]
    values.append(values[0] | {"id": "gone", "video": "gone.mp4"})
    path = made / "set" / "held_out.json"
    path.write_text(json.dumps(values))
    return path


def trainer_of(made, path):
    chosen = config(made, held_out={"records": str(path)})
    model, processor = load_model(chosen, None), load_processor(chosen, None)
    layout = BatchLayout(4)
    data = training_data(chosen, Corpus.open(chosen.data), model, processor, layout, open_held_out(chosen))
    return AviotTrainer(model, training_arguments(chosen, Parallelism(), layout), data, identity={})


def held_out_lines(checkpoint):
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [line for line in history if "held_out_loss" in line]


def test_it_is_logged_and_does_not_affect_the_run(made, records, tmp_path, capfd):
    """Dropout makes a changed random state or training mode visible in the losses."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    dropout = {"lora": {"rank": 2, "dropout": 0.5}, "optimization": SHORT}
    without = train(config(made, output=str(tmp_path / "without"), **dropout))
    held_out = {"records": str(records), "every": 1}
    logging = {"every": 1, "report_to": "tensorboard"}
    last = train(config(made, output=str(tmp_path / "with"), held_out=held_out, logging=logging, **dropout))
    assert [line["loss"] for line in lines(last)] == [line["loss"] for line in lines(without)]
    first, second = held_out_lines(last)
    assert (first["step"], second["step"]) == (1, 2)
    assert first["held_out_loss"] == pytest.approx(first["held_out_lm_loss"] + first["held_out_transport_loss"])
    assert first["held_out_examples"] == second["held_out_examples"] == 5  # the unreadable record is not replaced
    assert first["held_out_loss"] != second["held_out_loss"]
    printed = capfd.readouterr().err
    assert f"step 2/2: held-out loss {second['held_out_loss']:.4f} (language" in printed
    (events,) = {path.parent for path in (tmp_path / "with").rglob("events.out.tfevents.*")}
    board = EventAccumulator(str(events)).Reload()
    assert [event.step for event in board.Scalars("train/held_out_loss")] == [1, 2]


@pytest.mark.slow
def test_it_may_be_added_when_a_run_is_resumed(made, records, tmp_path):
    """It depends on weights and seed only, so its values are those of a run that had it from the start."""
    chosen = {"optimization": SHORT, "saving": {"every": 1}}
    held_out = {"records": str(records), "every": 2}
    whole = train(config(made, output=str(tmp_path / "whole"), held_out=held_out, **chosen))
    parts = train(config(made, output=str(tmp_path / "parts"), **chosen))
    again = config(made, output=str(tmp_path / "parts"), held_out=held_out, **chosen)
    resumed = train(again, resume=parts.with_name("checkpoint-1"))
    assert resumed == parts
    (expected,), (found,) = held_out_lines(whole), held_out_lines(resumed)
    assert found["held_out_loss"] == expected["held_out_loss"]


def test_it_is_the_training_loss(made):
    """The training set as one global batch: the same records at the same positions have the same ratios."""
    optimization = {"steps": 1, "global_batch": 12, "micro_batch": 4}
    last = train(config(made, output=str(made / "one-step"), optimization=optimization))
    trainer = trainer_of(made, made / "set" / "train.json")
    trainer.model.train()
    state = torch.get_rng_state()
    found = trainer.evaluate()
    assert trainer.model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(weight.grad is not None for weight in trainer.model.parameters())
    assert found["held_out_loss"] == pytest.approx(lines(last)[0]["loss"], abs=1e-5)
    assert found["held_out_lm_loss"] == pytest.approx(lines(last)[0]["lm_loss"], abs=1e-5)
    assert found["held_out_examples"] == 12


def test_processes_divide_it(made, records):
    """Every process runs as many forward passes, which sharded models need, and every example counts once."""
    alone = trainer_of(made, records)
    expected = alone.evaluate()
    parts, passes = [], []
    for rank in range(4):
        held_out = replace(alone.data.held_out, layout=BatchLayout(4, ranks=4, rank=rank))
        passes.append([batch["ids"] for batch, _ in held_out.batches()])

        def reduce(sums):
            parts.append(sums)
            return sum(parts)

        found = held_out.losses(lambda batch: alone._forward(alone.model.eval(), batch), reduce, 1.0, alone.args.device)
    assert [len(one) for one in passes] == [2, 2, 2, 2]
    assert found == pytest.approx(expected)


def test_a_limit_takes_the_first_examples(made, records):
    held_out = trainer_of(made, records).data.held_out
    few, all_of_them = ([batch["ids"] for batch, _ in replace(held_out, limit=limit).batches()] for limit in (2, None))
    assert few == all_of_them[:2]


def test_missing_records_are_found_before_the_model_is_loaded(made, tmp_path, monkeypatch):
    monkeypatch.setattr("aviot.training.run.load_model", None)
    with pytest.raises(DataError, match=r"there is no records file .*nowhere\.json"):
        train(config(made, output=str(tmp_path / "run"), held_out=str(tmp_path / "nowhere.json")))


def test_its_settings():
    from aviot.training.config import HeldOutConfig, TrainingConfig

    base = {"model": "m", "output": "o", "data": {"records": "a.json"}}
    found = TrainingConfig.from_dict(base | {"held_out": "b.json"})
    assert found.held_out == HeldOutConfig(records="b.json")
    assert TrainingConfig.from_dict(found.to_dict()) == found
    with pytest.raises(ValueError, match="every must be a whole number of at least 1, got 0"):
        TrainingConfig.from_dict(base | {"held_out": {"records": "b.json", "every": 0}})
