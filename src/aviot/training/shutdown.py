"""The end of a training process: SIGTERM and SIGINT, which write a checkpoint first, and a safe exit."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch
from torch import distributed
from transformers import TrainerCallback

STDERR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)

REPEAT_SECONDS = 2.0
"""Under torchrun, a second signal within this time is a copy of the first: Slurm signals every process of a job step,
and torchrun forwards the signal to the processes that it started."""

_alive: list[Any] = []


class TrainingInterrupted(RuntimeError):
    """A run that a signal ended; it can be resumed from `checkpoint`. `problem` is the message without advice."""

    def __init__(self, number: int, checkpoint: Path, steps: int) -> None:
        self.signal = signal.Signals(number)
        self.checkpoint = checkpoint
        step = checkpoint.name.rpartition("-")[2]
        self.problem = f"stopped by {self.signal.name} after step {step} of {steps}; wrote {checkpoint}"
        super().__init__(f"{self.problem}. Call train with resume=True to continue")

    @property
    def exit_code(self) -> int:
        """Return a shell's exit code for a process that this signal ended: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + self.signal


class StopOnSignal(TrainerCallback):
    """A callback that ends a run after the step in which any of its processes received a signal.

    As a context manager it installs the signal handlers and restores the previous ones. `stopped_by` is the signal that
    ended the run, 0 if none did. A second signal ends the process at once.
    """

    def __init__(self, *, announces: bool) -> None:
        self._announces = announces
        self._received = 0
        self._received_at = 0.0
        self._previous: dict[signal.Signals, Any] = {}
        self.stopped_by = 0

    def __enter__(self) -> "StopOnSignal":
        if threading.current_thread() is threading.main_thread():  # other threads must not install handlers
            handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the run if any process received a signal, unless this was the last step anyway."""
        if state.global_step >= state.max_steps:
            return
        self.stopped_by = self._received_by_any(args.device)
        if self.stopped_by:
            control.should_training_stop = control.should_save = control.should_log = True
            control.should_evaluate = False  # the held-out loss could take longer than the time until SIGKILL

    def _received_by_any(self, device: torch.device) -> int:
        """Return the signal that any process received, the same number in all of them."""
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return self._received
        largest = torch.tensor(self._received, device=device)
        distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        return int(largest)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._received:
            self._received, self._received_at = number, monotonic()
            if self._announces:
                _announce(signal.Signals(number).name)
        elif "TORCHELASTIC_RUN_ID" not in os.environ or monotonic() - self._received_at > REPEAT_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _announce(name: str) -> None:
    """Print what happens next, not through the console: the handler may have interrupted the console's own write."""
    text = f"\naviot: {name}: finishing this step, then writing a checkpoint; send it again to end at once\n"
    with suppress(OSError):
        os.write(STDERR, text.encode())


def ignore_signals_in_worker(_: int) -> None:
    """Make a data loader's worker ignore SIGINT, and SIGTERM unless its parent sends it.

    A signal to the whole process group or job step reaches the workers too, and a worker that dies fails the step.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_exit_when_parent_asks, daemon=True).start()


def _exit_when_parent_asks() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def keep_alive(trainer: Any) -> None:
    """Keep a reference to the trainer until the process ends, so that Python never destroys its process group.

    The group's destructor waits for gloo's thread while it holds the interpreter's lock. The thread may itself be
    waiting for that lock, to release the last collective's tensors: a deadlock.
    """
    _alive.append(trainer)


def end_process(code: int = 0) -> NoReturn:
    """Call the registered exit functions, then exit at once, without finalizing the interpreter.

    Gloo's threads release the last tensors a moment after a collective is over, and a process group that is still
    referenced is destroyed with the interpreter. A thread that then asks for the interpreter's lock aborts the process
    ("terminate called without an active exception"), and torchrun reports a run as failed whose last checkpoint is
    saved.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
