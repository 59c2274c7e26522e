"""How a process that trained with others ends."""

import atexit
import os
import sys
from typing import NoReturn


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
