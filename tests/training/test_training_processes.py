"""The losses of a run do not depend on its number of processes and micro steps."""

import json

import pytest
import torch
from tiny import ROOT, config, lines, logged_losses, start, torchrun

from aviot.training.run import train

STEPS = 6  # docs/log.md has results of 20
CHOSEN = {"steps": STEPS, "global_batch": 4, "learning_rate": 3e-3}
PARALLELISM = {
    "replicas": {"optimization": CHOSEN},
    **{
        name: {"optimization": CHOSEN, "parallelism": str(ROOT / "configs" / "parallelism" / f"{name}.yaml")}
        for name in ("fsdp2", "zero1", "zero2", "zero3")
    },
}


def one_process(made, **changes):
    """Return the losses of a run in this process, on examples of different lengths and ratios."""
    name = "-".join(["one", *map(str, changes.values())])
    if not (made / name).exists():
        chosen = {"optimization": CHOSEN | changes, "saving": {"every": STEPS}}
        train(config(made, output=str(made / name), held_out=held_out(made), **chosen))
    return [line["loss"] for line in lines(made / name / f"checkpoint-{STEPS}")]


def held_out(made):
    """Return settings for three held-out examples, which two processes cannot divide equally, measured twice."""
    return {"records": str(made / "set" / "train.json"), "every": STEPS // 2, "limit": 3}


def held_out_losses(made, name):
    history = json.loads((made / name / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]
    return [line["held_out_loss"] for line in history if "held_out_loss" in line]


@pytest.mark.parametrize("micro_batch", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_micro_batches(made, micro_batch):
    losses = one_process(made)
    assert len(losses) == STEPS
    assert one_process(made, micro_batch=micro_batch) == pytest.approx(losses, abs=1e-4)


@pytest.mark.parametrize("parallelism", [pytest.param("zero1", marks=pytest.mark.slow), "zero3"])
def test_two_processes(made, parallelism):
    done = start(made, parallelism, processes=2, held_out=held_out(made), **PARALLELISM[parallelism])
    assert [one.returncode for one in done] == [0, 0], "".join(one.stderr[-4000:] for one in done)
    assert logged_losses(made, parallelism, STEPS) == pytest.approx(one_process(made), abs=1e-4)
    assert held_out_losses(made, parallelism) == pytest.approx(held_out_losses(made, "one"), abs=1e-4)
    assert len(held_out_losses(made, parallelism)) == 2


def test_sharding_with_one_process_is_rejected(made):
    with pytest.raises(ValueError, match="fsdp needs several processes, got one; start the run with torchrun"):
        train(config(made, output=str(made / "lonely"), **PARALLELISM["fsdp2"]))


@pytest.mark.slow
def test_two_processes_in_bfloat16(made):
    """Started by torchrun: losses are float32, and those of FSDP2 in bfloat16 agree with those of replicas."""
    changes = {"optimization": CHOSEN | {"steps": 2}, "precision": "bf16"}
    done = torchrun(made, "fsdp2-bf16", processes=2, parallelism=PARALLELISM["fsdp2"]["parallelism"], **changes)
    assert done.returncode == 0, done.stderr[-4000:]
    losses = logged_losses(made, "fsdp2-bf16", 2)
    train(config(made, output=str(made / "one-bf16"), **changes))
    assert losses == pytest.approx(logged_losses(made, "one-bf16", 2), rel=1e-3)
    assert losses != [torch.tensor(loss).bfloat16().item() for loss in losses]
