"""SIGTERM and SIGINT: a run ends after its current step, with a checkpoint to resume from."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback

STDERR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)

REPEAT_SECONDS = 2.0
"""Under torchrun a second signal within this time is the first again: Slurm sends it to every process of a job step,
and torchrun sends it on to those that it started."""


class TrainingInterrupted(RuntimeError):
    """A run that a signal ended; `checkpoint` is whole, and the run can be resumed from it."""

    def __init__(self, number: int, checkpoint: Path, steps: int) -> None:
        self.signal = signal.Signals(number)
        self.checkpoint = checkpoint
        step = checkpoint.name.rpartition("-")[2]
        super().__init__(
            f"stopped by {self.signal.name} after step {step} of {steps}; wrote {checkpoint}. Go on with the same "
            "command and --resume"
        )

    @property
    def exit_code(self) -> int:
        """The shell's code for a process that this signal ended: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + self.signal


class StopOnSignal(TrainerCallback):
    """Ends a run after the step in which a process of it got a signal, once all processes know of it.

    As a context manager it installs the handlers and takes them back. `stopped_by` is the signal that ended the run, 0
    if none did. A second signal ends the process at once.
    """

    def __init__(self, *, speaks: bool) -> None:
        self._speaks = speaks
        self._received = 0
        self._since = 0.0
        self._before: dict[signal.Signals, Any] = {}
        self.stopped_by = 0

    def __enter__(self) -> "StopOnSignal":
        if threading.current_thread() is threading.main_thread():  # no other thread may install handlers
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop here if any process was told to; a run that is complete anyway ends as it would."""
        if state.global_step >= state.max_steps:
            return
        self.stopped_by = self._agreed(args.device)
        if self.stopped_by:
            control.should_training_stop = control.should_save = control.should_log = True
            control.should_evaluate = False  # a held-out pass could outlast the time until the process is killed

    def _agreed(self, device: torch.device) -> int:
        """Return the signal that any process got, the same number in all of them."""
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return self._received
        found = torch.tensor(self._received, device=device)
        distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
        return int(found)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._received:
            self._received, self._since = number, monotonic()
            if self._speaks:
                _announce(signal.Signals(number).name)
        elif "TORCHELASTIC_RUN_ID" not in os.environ or monotonic() - self._since > REPEAT_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _announce(name: str) -> None:
    """Say what happens now, past the console: a handler may run in the middle of the console's own writing."""
    text = f"\naviot: {name}: finishing this step, then writing a checkpoint; send it again to end at once\n"
    with suppress(OSError):
        os.write(STDERR, text.encode())


def shield_worker(_: int) -> None:
    """Keep a data loader's worker alive through signals that are meant for the run; its parent can still end it.

    A signal to the whole process group or job step reaches workers too, and a worker that dies fails the step.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_obey_parent, daemon=True).start()


def _obey_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
