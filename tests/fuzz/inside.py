"""What happens inside the process of a case: the check, under watch, and one line about it."""

import atexit
import ctypes
import io
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.util import _exit_function
from pathlib import Path
from typing import Any, NoReturn

from fuzz.target import Broken, Target, require

SAID = 6000
ANSWERS = b"y\nyes\n" * 50
"""What a question on stdin gets: a loader that asks whether it may run code is told that it may."""

LOOPBACK = ("127.", "::1", "localhost")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


PR_SET_PDEATHSIG = 1
_exits: list[Callable[[], Any]] = []


def remember_exits() -> None:
    """Note the exit functions that aviot's modules register when they are imported; those of libraries take long."""
    register = atexit.register

    def remember(function: Any, *arguments: Any, **named: Any) -> Any:
        owner = getattr(function, "__self__", function)
        if getattr(owner, "__module__", "").startswith("aviot"):
            _exits.append(partial(function, *arguments, **named))
        return register(function, *arguments, **named)

    atexit.register = remember  # type: ignore[assignment]


def end_with_parent() -> None:
    """Have this process killed when the one that forked it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_case(target: Target, source: Path, empty: Sequence[Path], log: Path, pipe: int) -> NoReturn:
    """Check a case in this forked process, write the result to a pipe, and end as an interpreter would."""
    try:
        _enter(empty, log)
        watch = Watch(source.parent)
        sys.addaudithook(watch.event)
        kind, detail = _checked(target, source, watch)
        os.write(pipe, json.dumps({"kind": kind, "detail": detail[-SAID:]}).encode())
        os.close(pipe)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)


def _enter(empty: Sequence[Path], log: Path) -> None:
    """Give the process a session, folders, streams and exit functions of its own."""
    os.setsid()
    end_with_parent()
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    for function in (weakref.finalize._exitfunc, _exit_function, *_exits):  # type: ignore[attr-defined]
        atexit.register(function)
    temporary, home, working = empty
    os.environ.update(TMPDIR=str(temporary), HOME=str(home), XDG_CACHE_HOME=str(home))
    tempfile.tempdir = None
    os.chdir(working)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(written, 1)
    os.dup2(written, 2)
    reader, writer = os.pipe()
    os.write(writer, ANSWERS)
    os.close(writer)
    os.dup2(reader, 0)


def _checked(target: Target, source: Path, watch: "Watch") -> tuple[str, str]:
    refused = ""
    try:
        try:
            detail = target.check(source)
        except target.errors() as error:
            refused = detail = sentence_of(error)
        watch.complain()
    except Broken as error:
        return "property", str(error)
    except BaseException as error:
        return "traceback", "".join(traceback.format_exception(error))
    return ("refused" if refused else "accepted"), detail


def sentence_of(error: Exception) -> str:
    """Return what a terminal shows of an error; raise Broken where that is no sentence for any terminal."""
    from aviot.commands.terminal import mistakes

    stream = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)
    before, sys.stderr = sys.stderr, stream
    try:
        with mistakes():
            raise error
    except Exception as ended:
        require(getattr(ended, "exit_code", None) == 2, f"expected exit code 2, got {ended!r} for {error!r:.300}")
    finally:
        sys.stderr = before
    shown = stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
    steering = sorted({c for c in shown if c not in "\n\t" and (c < " " or "\x7f" <= c <= "\x9f")})
    require(not steering, f"characters that steer a terminal, {steering!r}, in {shown!r:.300}")
    require(len(shown.strip()) > len("aviot: "), f"an empty sentence for {error!r:.300}")
    return f"{type(error).__name__}: {shown.strip()}"


class Watch:
    """Notes what no reader of foreign input may do; Python tells it of every such event."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._done: list[str] = []
        self._seen: dict[str, Callable[..., str | None]] = {
            "open": self._open,
            "socket.connect": self._connect,
            "socket.getaddrinfo": lambda host, *_: None if _is_loopback(host) else f"looked up the host {host!r}",
            "exec": self._exec,
            "os.system": lambda command: f"ran {command!r}",
        }

    def event(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Note an event of the interpreter if it is one of these."""
        if name in self._seen and (done := self._seen[name](*arguments)) is not None:
            self._done.append(done)

    def complain(self) -> None:
        """Raise Broken for the first thing noted."""
        require(not self._done, f"it {self._done[0]}" if self._done else "")

    def _open(self, path: Any, mode: Any, flags: Any) -> str | None:
        if not isinstance(path, str | bytes | os.PathLike) or not isinstance(flags, int) or not flags & WRITES:
            return None
        full = os.path.realpath(os.fsdecode(path))
        inside = full.startswith((self._root + os.sep, "/dev/", "/proc/"))
        return None if inside else f"opened {full} for writing"

    def _exec(self, code: Any) -> str | None:
        name = getattr(code, "co_filename", "")
        run = os.path.dirname(self._root)  # with the hub's folder, where code of a checkpoint would be copied to
        is_input = os.path.isabs(name) and os.path.realpath(name).startswith(run + os.sep)
        return f"ran code of the input, {name}" if is_input else None

    def _connect(self, _: Any, address: Any) -> str | None:
        host = address[0] if isinstance(address, tuple) else ""
        return None if _is_loopback(host) else f"connected to {address!r}"


def _is_loopback(host: Any) -> bool:
    return not host or str(host).startswith(LOOPBACK)
