"""Killed at the worst moments and resumed: the same losses as the run that was left alone."""

import signal

import pytest
from tiny import config, lines, start, whole_losses

from aviot.models import AviotForConditionalGeneration
from aviot.training.run import train

STEPS = 6
HOW = {"optimization": {"steps": STEPS, "global_batch": 4, "micro_batch": 2, "learning_rate": 1e-3}}
DROPOUT = {"lora": {"rank": 2, "dropout": 0.5}}  # what is drawn must go on as well


@pytest.fixture(scope="session", params=["whole", "adapters"])
def alone(request, made):
    """A run that nobody disturbs, and how it was configured."""
    changes = HOW | (DROPOUT if request.param == "adapters" else {})
    train(config(made, output=str(made / f"alone-{request.param}"), **changes))
    return f"alone-{request.param}", changes


@pytest.mark.parametrize("place", ["step:4", "save:4"])
def test_killed_and_resumed(made, alone, place):
    name, changes = alone
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


@pytest.mark.parametrize("engine", ["replicas", "fsdp2"])
def test_two_processes_killed_and_resumed(made, engine):
    """Across processes too, and as one process would have gone on; the first of them alone speaks."""
    from test_training_processes import ENGINE, held_out, held_out_losses, one_process

    changes = ENGINE[engine] | {"saving": {"every": 2}, "held_out": held_out(made)}
    name = f"killed-{engine}"
    assert all(one.returncode for one in start(made, name, "kill=step:4", processes=2, **changes))
    first, second = start(made, name, "resume", processes=2, **changes)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr[-4000:] + second.stderr[-4000:]
    said = first.stderr + second.stderr
    assert said.count("step 6/6: loss") == said.count("saved checkpoint-6") == 1
    assert whole_losses(made, name, 6) == pytest.approx(one_process(made), abs=1e-4)
    assert held_out_losses(made, name)[-1] == pytest.approx(held_out_losses(made, "one")[-1], abs=1e-4)
