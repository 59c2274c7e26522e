"""Targets with one bug each, to test that the runner sees it: `python tests/fuzz planted-sleep --rounds 1`."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz.target import Broken, Limits, Refused, Target

PREFIX = "planted-"
BYTES = 2_000_000_000


def _raise(folder: Path) -> None:
    raise RuntimeError("not what the layer documents")


def _print_traceback(folder: Path) -> None:
    print("Traceback (most recent call last): in a thread", file=sys.stderr)


def _wrong(folder: Path) -> None:
    raise Broken("times do not increase")


def _sleep(folder: Path) -> None:
    time.sleep(60)


def _spin(folder: Path) -> None:
    while True:
        pass


def _allocate(folder: Path) -> None:
    held = bytearray(BYTES)
    time.sleep(0.1 * bool(held))


def _allocate_in_child(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", f"held = bytearray({BYTES})"], check=False)


def _kill(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _exit(folder: Path) -> None:
    os._exit(3)


def _leave_file(folder: Path) -> None:
    os.close(tempfile.mkstemp()[0])


def _change_input(folder: Path) -> None:
    (folder / "bug").write_text("changed")


def _leave_process(folder: Path) -> None:
    subprocess.Popen(["sleep", "60"])


def _write_elsewhere(folder: Path) -> None:
    Path(folder.parents[1], "elsewhere").write_text("x")


def _connect(folder: Path) -> None:
    with socket.socket() as tried:
        tried.settimeout(0.01)
        tried.connect_ex(("192.0.2.1", 9))


def _run_input(folder: Path) -> None:
    code = folder / "code.py"
    exec(compile("x = 1", str(code), "exec"), {})


def _ask_whether_to_run(folder: Path) -> None:
    if input("run it? ") == "y":
        _run_input(folder)


def _refuse(folder: Path) -> None:
    raise Refused("expected a folder, got a file; name a folder")


class _PrintsPastTheFilter(Refused):
    def __str__(self) -> str:
        sys.stderr.write("\x1b[31m")
        return "expected a folder, got a file; name a folder"


def _refuse_with_escape_codes(folder: Path) -> None:
    raise _PrintsPastTheFilter


def _sound(folder: Path) -> None:
    with tempfile.TemporaryDirectory():
        pass


BUGS: dict[str, tuple[Callable[[Path], None], str]] = {
    "sound": (_sound, "accepted"),
    "refuse": (_refuse, "refused"),
    "raise": (_raise, "traceback"),
    "print-traceback": (_print_traceback, "traceback"),
    "wrong-result": (_wrong, "property"),
    "escape-codes": (_refuse_with_escape_codes, "property"),
    "connect": (_connect, "property"),
    "run-input": (_run_input, "property"),
    "ask-to-run-input": (_ask_whether_to_run, "property"),
    "write-elsewhere": (_write_elsewhere, "property"),
    "sleep": (_sleep, "deadline"),
    "spin": (_spin, "deadline"),
    "allocate": (_allocate, "memory"),
    "allocate-in-child": (_allocate_in_child, "memory"),
    "kill-itself": (_kill, "signal"),
    "exit": (_exit, "signal"),
    "leave-file": (_leave_file, "leftover"),
    "leave-process": (_leave_process, "leftover"),
    "change-input": (_change_input, "leftover"),
}
"""What each bug does, and the kind that the runner must report."""


def target(bug: str) -> Target:
    """Return a target that has one of the bugs; its control has none."""

    def write(rng: Random, sources: Path, folder: Path) -> str:
        (folder / "bug").write_text(bug)
        return f"bug: {bug}"

    return Target(
        name=f"{PREFIX}{bug}",
        prepare=lambda sources: None,
        control=lambda sources, folder: None,
        write=write,
        check=_check,
        errors=lambda: (Refused,),
        limits=Limits(cpu_seconds=2.0, wall_seconds=4.0, bytes=600_000_000),
    )


def _check(folder: Path) -> str:
    if (folder / "bug").is_file():
        BUGS[(folder / "bug").read_text()][0](folder)
    return "nothing"
