"""SIGTERM and SIGINT end a run after its step, with a checkpoint from which it goes on exactly."""

import multiprocessing
import os
import signal
import subprocess
import time

import pytest
from tiny import config, forked, lines, start, whole_losses, write_settings
from transformers import TrainerCallback
from typer.testing import CliRunner

from aviot.cli import app
from aviot.training import saving
from aviot.training.interruption import SIGNALS, StopOnSignal, TrainingInterrupted, shield_worker
from aviot.training.run import train


class SendSignal(TrainerCallback):
    """Sends a signal as a step begins."""

    def __init__(self, number, step):
        self.number, self.step = number, step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            os.kill(os.getpid(), self.number)


def test_sigterm_ends_the_run_with_a_checkpoint_to_resume_from(run, made, capfd):
    handlers = [signal.getsignal(one) for one in SIGNALS]
    chosen = config(made, output=str(made / "stopped"), saving={"every": 100}, logging={"every": 100})
    with pytest.raises(TrainingInterrupted) as stopped:
        train(chosen, callbacks=[SendSignal(signal.SIGTERM, 2)])
    checkpoint = made / "stopped" / "checkpoint-2"
    assert stopped.value.exit_code == 143
    assert str(stopped.value) == (
        f"stopped by SIGTERM after step 2 of 4; wrote {checkpoint}. Go on with the same command and --resume"
    )
    assert "SIGTERM: finishing this step" in capfd.readouterr().err
    assert list(saving.checkpoints(made / "stopped")) == [2]
    assert [signal.getsignal(one) for one in SIGNALS] == handlers
    again = config(made, output=chosen.output)  # logging and saving may change
    found = {line["step"]: line["loss"] for line in lines(train(again, resume=True))}
    expected = {line["step"]: line["loss"] for line in lines(run[1])}
    assert found == expected
    assert list(saving.checkpoints(made / "stopped")) == [2, 4]


@pytest.mark.parametrize(("steps", "code"), [(2, 130), (1, None)])
def test_sigint_does_so_too_unless_the_run_is_complete(made, steps, code):
    chosen = config(made, output=str(made / f"sigint-{steps}"), optimization={"steps": steps, "global_batch": 1})
    try:
        train(chosen, callbacks=[SendSignal(signal.SIGINT, 1)])
        found = None
    except TrainingInterrupted as stopped:
        found = stopped.exit_code
    assert found == code
    assert list(saving.checkpoints(made / f"sigint-{steps}")) == [1]


@pytest.mark.parametrize(("launcher", "ended"), [(None, [signal.SIGINT]), ("torchrun", [])])
def test_a_second_signal_ends_at_once(monkeypatch, launcher, ended):
    """Under torchrun, which sends on what Slurm has sent to everyone, not if it comes with the first."""
    raised = []
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    if launcher:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", launcher)
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    before = signal.getsignal(signal.SIGINT)
    with StopOnSignal(speaks=False) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not raised
        os.kill(os.getpid(), signal.SIGINT)
        assert raised == ended
        assert (signal.getsignal(signal.SIGINT) == signal.SIG_DFL) == bool(ended)
        if launcher:
            stop._since -= 60
            os.kill(os.getpid(), signal.SIGINT)
            assert raised == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) == before


def test_processes_agree_on_the_step(made):
    """One of two gets the signal, as when Slurm's reaches them at different times; one process goes on from there."""
    from test_training_processes import ENGINE, one_process

    changes = ENGINE["replicas"] | {"saving": {"every": 100}}
    ended = start(made, "agreed", "signal=1:3", processes=2, **changes)
    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr[-3000:]
    assert list(saving.checkpoints(made / "agreed")) == [3]
    assert all("exit code 143: stopped by SIGTERM after step 3 of 6" in one.stderr for one in ended)
    assert sum("SIGTERM: finishing this step" in one.stderr for one in ended) == 0  # the first alone speaks
    train(config(made, output=str(made / "agreed"), **changes), resume=True)
    assert whole_losses(made, "agreed", 6) == pytest.approx(one_process(made), abs=1e-4)


def test_workers_outlive_a_signal_to_the_whole_group(run, made):
    """As a terminal's Ctrl-C, torchrun and Slurm send it: a worker that died would fail the step."""
    path = write_settings(made, "group", loader={"workers": 1}, saving={"every": 100})
    ended = forked(path, "group", "signal=0:1")[0]
    assert "exit code 143" in ended.stderr
    assert whole_losses(made, "group", 1) == [line["loss"] for line in lines(run[1])][:1]


def shielded(ready):
    shield_worker(0)
    ready.set()
    time.sleep(60)


def test_a_workers_parent_can_end_it():
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=shielded, args=(ready,), daemon=True)
    worker.start()
    assert ready.wait(20)
    subprocess.run(["kill", "-TERM", str(worker.pid)], check=True)  # from another process than its parent
    worker.join(0.3)
    assert worker.is_alive()
    worker.terminate()
    worker.join(20)
    assert worker.exitcode == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_says_so_and_ends_with_the_signals_code(made, monkeypatch, processes):
    def interrupted(settings, *, resume):
        raise TrainingInterrupted(signal.SIGTERM, made / "checkpoint-7", 9)

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr("aviot.training.run.train", interrupted)
    monkeypatch.setattr("aviot.training.ending.end_process", end)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    done = CliRunner().invoke(app, ["train", "--config", str(write_settings(made, "command"))])
    assert done.exit_code == 143
    assert f"aviot: stopped by SIGTERM after step 7 of 9; wrote {made / 'checkpoint-7'}. Go on with" in done.stderr
    assert done.stdout == ""
