"""SIGTERM and SIGINT end a run after its step, with a checkpoint to resume from; processes exit without aborting."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from tiny import config, forked, lines, logged_losses, start, write_settings
from transformers import TrainerCallback
from typer.testing import CliRunner

from aviot.cli import app
from aviot.training import saving
from aviot.training.run import train
from aviot.training.shutdown import SIGNALS, StopOnSignal, TrainingInterrupted, ignore_signals_in_worker


class SendSignal(TrainerCallback):
    """A callback that sends a signal when a step starts."""

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
        f"stopped by SIGTERM after step 2 of 4; wrote {checkpoint}. Call train with resume=True to continue"
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
def test_sigint_does_so_too_unless_it_is_the_last_step(made, steps, code):
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
    """Under torchrun only after a while: it forwards the signal that Slurm has sent to every process."""
    raised = []
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    if launcher:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", launcher)
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    before = signal.getsignal(signal.SIGINT)
    with StopOnSignal(announces=False) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not raised
        os.kill(os.getpid(), signal.SIGINT)
        assert raised == ended
        assert (signal.getsignal(signal.SIGINT) == signal.SIG_DFL) == bool(ended)
        if launcher:
            stop._received_at -= 60
            os.kill(os.getpid(), signal.SIGINT)
            assert raised == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) == before


def test_processes_agree_on_the_step(made):
    """One of two processes receives the signal; one process resumes the run."""
    from test_training_processes import PARALLELISM, one_process

    changes = PARALLELISM["replicas"] | {"saving": {"every": 100}}
    ended = start(made, "agreed", "signal=1:3", processes=2, **changes)
    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr[-3000:]
    assert list(saving.checkpoints(made / "agreed")) == [3]
    assert all("exit code 143: stopped by SIGTERM after step 3 of 6" in one.stderr for one in ended)
    assert sum("SIGTERM: finishing this step" in one.stderr for one in ended) == 0  # rank 0 alone prints it
    train(config(made, output=str(made / "agreed"), **changes), resume=True)
    assert logged_losses(made, "agreed", 6) == pytest.approx(one_process(made), abs=1e-4)


def test_workers_survive_a_signal_to_the_process_group(run, made):
    """Ctrl-C, torchrun and Slurm signal the whole group, and a worker that died would fail the step."""
    path = write_settings(made, "group", loader={"workers": 1}, saving={"every": 100})
    ended = forked(path, "group", "signal=0:1")[0]
    assert "exit code 143" in ended.stderr
    assert logged_losses(made, "group", 1) == [line["loss"] for line in lines(run[1])][:1]


def wait_as_worker(ready):
    ignore_signals_in_worker(0)
    ready.set()
    time.sleep(60)


def test_a_workers_parent_can_end_it():
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=wait_as_worker, args=(ready,), daemon=True)
    worker.start()
    assert ready.wait(20)
    subprocess.run(["kill", "-TERM", str(worker.pid)], check=True)  # from another process than its parent
    worker.join(0.3)
    assert worker.is_alive()
    worker.terminate()
    worker.join(20)
    assert worker.exitcode == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_exits_with_the_signals_code(made, monkeypatch, processes):
    def interrupted(settings, *, resume):
        raise TrainingInterrupted(signal.SIGTERM, made / "checkpoint-7", 9)

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr("aviot.training.run.train", interrupted)
    monkeypatch.setattr("aviot.training.shutdown.end_process", end)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    done = CliRunner().invoke(app, ["train", "--config", str(write_settings(made, "command"))])
    assert done.exit_code == 143
    expected = f"aviot: stopped by SIGTERM after step 7 of 9; wrote {made / 'checkpoint-7'}. To continue, add --resume"
    assert expected in done.stderr
    assert done.stdout == ""


COLLECTIVES = """
import atexit, sys, torch, torch.distributed as dist
from aviot.training.shutdown import end_process

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
held = dist.distributed_c10d._get_default_group()  # like a device mesh of FSDP2
for _ in range(20):
    tensor = torch.ones(2**21)
    tensor.label = "makes Python keep the object"
    dist.all_reduce(tensor, async_op=True)
    del tensor
atexit.register(print, "registered")
dist.destroy_process_group()
print("done")
end_process()
"""


@pytest.mark.slow
def test_threads_that_hold_tensors_do_not_abort_the_exit(tmp_path):
    """Without `end_process` most of these processes print "terminate called without an active exception"."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", COLLECTIVES, str(tmp_path / "meet"), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        printed, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert printed.split() == ["done", "registered"]
