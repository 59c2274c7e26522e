"""Runs that are killed in a step or a save and resumed: the same losses as an undisturbed run."""

import signal
from functools import cache

import pytest
from tiny import config, lines, logged_losses, start

from aviot.models import AviotForConditionalGeneration
from aviot.training.run import train

STEPS = 6
HOW = {"optimization": {"steps": STEPS, "global_batch": 4, "micro_batch": 2, "learning_rate": 1e-3}}
DROPOUT = {"lora": {"rank": 2, "dropout": 0.5}}  # the random states must be resumed as well


@cache
def undisturbed(made, kind):
    """Return the name of an undisturbed run, and its settings."""
    changes = HOW | (DROPOUT if kind == "adapters" else {})
    train(config(made, output=str(made / f"alone-{kind}"), **changes))
    return f"alone-{kind}", changes


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        pytest.param("whole", "step:4", marks=pytest.mark.slow),
        ("whole", "save:4"),
        pytest.param("adapters", "step:4", marks=pytest.mark.slow),
        pytest.param("adapters", "save:4", marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed(made, kind, place):
    name, changes = undisturbed(made, kind)
    run = f"{name}-{place.replace(':', '-')}"
    (killed,) = start(made, run, f"kill={place}", **changes)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert not (made / run / "checkpoint-4").exists()
    assert (made / run / ".checkpoint-4.partial").exists() == place.startswith("save")
    last = train(config(made, output=str(made / run), **changes), resume=True)
    expected = [line["loss"] for line in lines(made / name / f"checkpoint-{STEPS}")]
    assert [line["loss"] for line in lines(last)] == expected
    assert len(expected) == STEPS
    assert not list((made / run).glob(".*"))
    AviotForConditionalGeneration.from_pretrained(last)


@pytest.mark.parametrize("parallelism", [pytest.param("replicas", marks=pytest.mark.slow), "fsdp2"])
def test_two_processes_killed_and_resumed(made, parallelism):
    """The losses are those of one process, and rank 0 alone prints."""
    from test_training_processes import PARALLELISM, held_out, held_out_losses, one_process

    changes = PARALLELISM[parallelism] | {"saving": {"every": 2}, "held_out": held_out(made)}
    name = f"killed-{parallelism}"
    assert all(one.returncode for one in start(made, name, "kill=step:4", processes=2, **changes))
    first, second = start(made, name, "resume", processes=2, **changes)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr[-4000:] + second.stderr[-4000:]
    printed = first.stderr + second.stderr
    assert printed.count("step 6/6: loss") == printed.count("saved checkpoint-6") == 1
    assert logged_losses(made, name, 6) == pytest.approx(one_process(made), abs=1e-4)
    assert held_out_losses(made, name)[-1] == pytest.approx(held_out_losses(made, "one")[-1], abs=1e-4)
