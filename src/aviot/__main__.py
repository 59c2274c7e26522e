"""The command line's entry point: `aviot`, and `python -m aviot`, which torchrun and accelerate can start."""

import errno
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
UNWRITABLE = 2
CANNOT_WRITE = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG)


class _Interrupts:
    """A handler that records Ctrl-C: an interrupted import may raise any exception instead of KeyboardInterrupt."""

    seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        signal.default_int_handler(number, frame)


def main() -> None:
    """Run the command line, without a traceback after Ctrl-C or for output that cannot be written."""
    interrupts = _Interrupts()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # ignored in a shell's background jobs
        signal.signal(signal.SIGINT, interrupts)
    try:
        from aviot.cli import app

        try:
            app(prog_name="aviot")
        finally:
            sys.stdout.flush()
    except SystemExit as ended:
        if interrupts.seen and ended.code:  # exit code 0: a server that Ctrl-C ended properly
            _end(INTERRUPTED, "interrupted")
        raise
    except BaseException as error:
        if interrupts.seen:
            _end(INTERRUPTED, "interrupted")
        if isinstance(error, BrokenPipeError):
            _end(128 + signal.SIGPIPE)
        if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
            _end(UNWRITABLE, f"the output cannot be written ({os.strerror(error.errno)})")
        raise


def _end(code: int, sentence: str = "") -> None:
    """End the process without finalisation, which would use half-imported modules or write the output again."""
    if sentence:
        os.write(2, f"aviot: {sentence}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main()
