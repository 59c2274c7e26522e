"""One case in one forked process, and everything about it that can be seen from outside.

A fork of a process that has imported the libraries starts in about 20 ms and holds nothing of the case before it.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from fuzz.inside import run_case
from fuzz.target import Target

Kind = Literal["accepted", "refused", "signal", "traceback", "memory", "deadline", "leftover", "property"]
FAILURES = ("signal", "traceback", "memory", "deadline", "leftover", "property")

POLL = 0.02
GRACE = 2.0
"""Seconds that helper processes of a case, such as a forkserver, may take to end after it."""

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36
TOLD = 65_536


@dataclass(frozen=True)
class Observed:
    """How a case ended. `detail` is what it found, the sentence that refused it, or what went wrong."""

    kind: Kind
    detail: str
    cpu_seconds: float
    wall_seconds: float
    bytes: int
    log: str = ""

    @property
    def failed(self) -> bool:
        """Whether something went wrong."""
        return self.kind in FAILURES

    def as_json(self) -> str:
        """Return it on one line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Places:
    """The folders of a case: its input, and three that must be empty again after it."""

    root: Path

    @property
    def input(self) -> Path:
        """Return the folder that the case is written to."""
        return self.root / "input"

    @property
    def empty(self) -> tuple[Path, Path, Path]:
        """Return the temporary folder, the home and the working directory."""
        return self.root / "tmp", self.root / "home", self.root / "cwd"

    def renew(self) -> None:
        """Make all of them, empty."""
        shutil.rmtree(self.root, ignore_errors=True)
        for folder in (self.input, *self.empty):
            folder.mkdir(parents=True)


def adopt_orphans() -> None:
    """Make this process the parent of whatever its children leave running, so that it is seen."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def observe(target: Target, places: Places) -> Observed:
    """Run the check of a case whose input is written, and say how it ended."""
    before = _files(places.input)
    log = places.root / "log"
    reader, writer = os.pipe()
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        run_case(target, places.input, places.empty, log, writer)
    os.close(writer)
    stopped = _wait(target, pid, begin)
    _, status, used = os.wait4(pid, 0)
    wall = time.monotonic() - begin
    orphans = _end_orphans()
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read(TOLD)
    printed = log.read_text(errors="replace")[-4000:] if log.is_file() else ""
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    kind, detail = stopped or _ending(status, told)
    limits = target.limits
    if kind in ("accepted", "refused"):
        left = [*orphans, *_left_behind(target, places, before)]
        if peak > limits.bytes:
            kind, detail = "memory", f"{peak / 1e6:,.0f} MB; {detail}"
        elif cpu > limits.cpu_seconds:
            kind, detail = "deadline", f"{cpu:.1f} s of CPU; {detail}"
        elif left:
            kind, detail = "leftover", f"{', '.join(left[:5])}; {detail}"
        elif "Traceback (most recent call last)" in printed:
            kind, detail = "traceback", printed
    return Observed(kind, detail, round(cpu, 2), round(wall, 2), peak, printed)


def _wait(target: Target, pid: int, begin: float) -> tuple[Kind, str] | None:
    """Wait for a process to end; kill its session, and say why, where it passes a limit."""
    limits = target.limits
    handle = os.pidfd_open(pid)
    found: tuple[Kind, str] | None = None
    try:
        while not select.select([handle], [], [], POLL)[0]:
            held, cpu = _usage(pid)
            wall = time.monotonic() - begin
            if held > limits.bytes:
                found = "memory", f"killed at {held / 1e6:,.0f} MB after {wall:.1f} s"
            elif cpu > limits.cpu_seconds or wall > limits.wall_seconds:
                found = "deadline", f"killed after {cpu:.1f} s of CPU, {wall:.1f} s in all"
            if found:
                for each in _tree(pid):
                    _kill(each)
                break
    finally:
        os.close(handle)
    return found


def _tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        below = []
    return [pid, *(each for child in below for each in _tree(int(child)))]


def _usage(pid: int) -> tuple[int, float]:
    """Return the bytes of the largest process of a tree, and the CPU seconds of all of it so far."""
    held, ticks = 0, 0
    for each in _tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        held = max(held, int(fields[21]) * PAGE)
        ticks += sum(map(int, fields[11:15]))
    return held, ticks / TICKS


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end_orphans() -> list[str]:
    """Wait a moment for processes that a case has left, and end those that stay; return their command lines."""
    limit, stayed = time.monotonic() + GRACE, []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return stayed
        if pid == 0 and time.monotonic() > limit:
            for each in _tree(os.getpid())[1:]:
                stayed.append(f"process {_command(each)!r}")
                _kill(each)
            limit += GRACE
        elif pid == 0:
            time.sleep(POLL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
    except OSError:
        return str(pid)


def _ending(status: int, told: bytes) -> tuple[Kind, str]:
    """Return what a process said of itself, or how it died."""
    if os.WIFSIGNALED(status):
        return "signal", signal.Signals(os.WTERMSIG(status)).name
    if not told:
        return "signal", f"it ended with exit code {os.WEXITSTATUS(status)} and said nothing"
    said = json.loads(told)
    return said["kind"], said["detail"]


def _files(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return everything below a folder with what changes when it is written to; links are not followed."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = os.lstat(os.path.join(parent, name))
            is_folder = stat.S_ISDIR(status.st_mode)
            about = (status.st_mode,) if is_folder else (status.st_mode, status.st_size, status.st_mtime_ns)
            found[os.path.relpath(os.path.join(parent, name), folder)] = about
    return found


def _left_behind(target: Target, places: Places, before: dict[str, tuple[int, ...]]) -> list[str]:
    """Return what is in the folders that must be empty, and what was changed, added or removed in the input."""
    left = [f"{folder.name}/{name}" for folder in places.empty for name in _files(folder)]
    after = _files(places.input)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    allowed = target.changes
    return left + [f"input/{name}" for name in changed if not any(fnmatch(name, pattern) for pattern in allowed)]
