"""How a process that trained with others ends."""

import atexit
import os
import sys
from typing import Any, NoReturn

_kept: list[Any] = []


def keep_until_end(trainer: Any) -> None:
    """Hold what knows the group of processes until the process ends, so that Python never destroys the group.

    Its destructor waits for gloo's thread while it holds the interpreter's lock. The thread may itself be waiting for
    that lock, to let go of the last collective's tensors: then both wait for ever.
    """
    _kept.append(trainer)


def end_process(code: int = 0) -> NoReturn:
    """Call what libraries registered for the end, then end at once, without the interpreter's own clearing up.

    Gloo's threads let go of the last tensors a moment after a collective is over, and a group that anything still holds
    is destroyed with the interpreter. A thread that then asks for the interpreter's lock aborts the process ("terminate
    called without an active exception"), and torchrun calls a run failed whose last checkpoint is saved.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
