"""Strangers' videos, read in a process of their own: a file that hangs, swells or crashes costs its item, no more.

A reader that did well is used again for the next file; one that met any trouble is not.
"""

import atexit
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from aviot.video.errors import VideoError, reason
from aviot.video.limits import ReadLimits
from aviot.video.messages import PREFIX_BYTES, BadReply, read_header, rebuild_video, unpack_prefix
from aviot.video.read import Source, read_video
from aviot.video.result import Video
from aviot.video.sample import DEFAULT_FPS, DEFAULT_MAX_FRAMES, Sampling, check_rate
from aviot.video.scaling import Scaling

START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from aviot.video.worker import main; main()"

LOOK_SECONDS = 0.05
"""Time between two looks at a reader's memory; a decoder fills about 100 MB meanwhile."""

MAX_IDLE, MAX_FILES, MAX_KEPT_MEMORY = 2, 100, 300_000_000
"""Readers that wait for the next file, files that one reads, and bytes that it may still hold after one."""

DEFAULT_LIMITS = ReadLimits()


class Ended(Exception):
    """A reader that ended before its reply did."""


class Reader:
    """A process that reads one video at a time."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [*(path for path in sys.path if isinstance(path, str) and path), root]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, json.dumps(paths)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C and Ctrl-Z are for the parent
            )
        except OSError as error:
            raise VideoError(f"the process that reads videos cannot be started ({reason(error)})") from error
        self._requests, self._replies = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        self._files = 0
        self.stopped = False

    def ask(self, request: dict[str, Any], path: Path, limits: ReadLimits) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """Have a file read; returns the reply's header and pixels. Raises VideoError, Ended or BadReply."""
        self._files += 1
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            receive = partial(self._receive, selector, path, limits, time.monotonic() + request["seconds"])
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
            except BrokenPipeError as error:
                raise Ended from error
            header, pixels = unpack_prefix(receive(PREFIX_BYTES).tobytes(), limits.memory)
            return read_header(receive(header).tobytes()), receive(pixels)

    def _receive(
        self, selector: selectors.BaseSelector, path: Path, limits: ReadLimits, ends: float, count: int
    ) -> NDArray[np.uint8]:
        """Wait for so many bytes, with an eye on the clock and on the process's memory."""
        data = np.empty(count, np.uint8)
        left, look = data.data, 0.0
        while left:
            if selector.select(LOOK_SECONDS):
                taken = os.readv(self._replies.fileno(), [left])
                if not taken:
                    raise Ended
                left = left[taken:]
            if (now := time.monotonic()) < look:
                continue
            look = now + LOOK_SECONDS
            if self._memory() > limits.memory:
                raise limits.too_large(path)
            if left and now > ends:
                raise limits.too_slow(path)
        return data

    @property
    def is_fresh(self) -> bool:
        """Whether no file was read before this one."""
        return self._files <= 1

    @property
    def is_fit(self) -> bool:
        """Whether another file can be given to this process."""
        return not self.stopped and self._files < MAX_FILES and self._memory() < MAX_KEPT_MEMORY

    def _memory(self) -> int:
        """Return the bytes of memory that the process holds; 0 where the system does not say."""
        try:
            with open(f"/proc/{self._process.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def end(self) -> int:
        """End the process if it has not; returns its exit code, negative for a signal."""
        if self._process.poll() is None:
            self._process.kill()
        code = self._process.wait()
        self.forget()
        return code

    def forget(self) -> None:
        """Close this end of the pipes."""
        self._requests.close()
        self._replies.close()

    def stop(self) -> None:
        """End the process from another thread than the one that waits for it."""
        self.stopped = True
        self._process.kill()

    def ended(self, path: Path) -> VideoError:
        """Return why the process has ended while it read a file."""
        try:
            code = self._process.wait(1)  # its pipe is closed a moment before
        except subprocess.TimeoutExpired:
            code = self.end()
        if self.stopped:
            return VideoError(f"{path} was not read: reading was stopped")
        if code >= 0:
            return VideoError(f"{path} was not read: the process for it ended with exit code {code}")
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        if name == "SIGKILL":
            return VideoError(f"{path} was not read: the system killed the decoder, perhaps for lack of memory")
        return VideoError(f"{path} made the decoder crash (signal {-code}, {name}); re-encode it")


class Readers:
    """Readers that are at work and those that wait; safe to use from several threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        self._busy: set[Reader] = set()

    def take(self) -> Reader:
        """Return a reader that waits, or a new one."""
        with self._lock:
            reader = self._idle.pop() if self._idle else Reader()
            self._busy.add(reader)
        return reader

    def give_back(self, reader: Reader, *, trusted: bool) -> None:
        """Keep a reader for the next file if it can be trusted with one, else end it."""
        with self._lock:
            self._busy.discard(reader)
            kept = trusted and reader.is_fit and len(self._idle) < MAX_IDLE
            if kept:
                self._idle.append(reader)
        if not kept:
            reader.end()

    def stop(self) -> None:
        """End what is being read, and everything that waits."""
        with self._lock:
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for reader in busy:
            reader.stop()
        for reader in idle:
            reader.end()

    def forget(self) -> None:
        """In a forked process: leave the readers to the one that started them."""
        for reader in (*self._idle, *self._busy):
            reader.forget()
        self._begin()


_readers = Readers()
atexit.register(_readers.stop)
os.register_at_fork(after_in_child=_readers.forget)


def stop_reading() -> None:
    """End every read that is under way in another thread; each raises VideoError there."""
    _readers.stop()


def read_isolated(
    source: Source,
    *,
    fps: float = DEFAULT_FPS,
    max_frames: int = DEFAULT_MAX_FRAMES,
    frames: int | None = None,
    transform: Scaling | None = None,
    source_fps: float | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Video:
    """Read a video as `read_video` does, with the same result, in a process of limited time and memory.

    `transform` is a `Scaling` or None: another process cannot be given a function. Frames in memory are read here. A
    file that is too slow, takes too much memory or crashes the decoder is a VideoError that says so.
    """
    sampling = Sampling(fps=fps, max_frames=max_frames, frames=frames)
    rate = None if source_fps is None else check_rate("source_fps", source_fps)
    wishes: dict[str, Any] = {
        "fps": float(sampling.fps),
        "max_frames": int(sampling.max_frames),
        "frames": None if frames is None else int(frames),
        "source_fps": rate,
    }
    if not isinstance(source, (str, os.PathLike)) or not isinstance(os.fspath(source), str):
        return read_video(source, transform=transform, **wishes)
    if transform is not None and not isinstance(transform, Scaling):
        raise TypeError(f"transform must be a Scaling, which another process can be told of, got {transform!r}")
    path = Path(source)
    request = {
        "source": os.fspath(source),
        "folder": _folder(),
        "sampling": wishes,
        "scaling": None if transform is None else asdict(transform),
        "seconds": limits.deadline(path),
        "memory": limits.memory,
    }
    return _ask(request, path, limits)


def _folder() -> str:
    """Return the folder that relative paths count from; one that was removed has none."""
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def _ask(request: dict[str, Any], path: Path, limits: ReadLimits) -> Video:
    reader = _readers.take()
    trusted = False
    try:
        header, pixels = reader.ask(request, path, limits)
        _log(header.get("warnings"))
        if "video" in header:
            video = rebuild_video(header["video"], pixels)
            trusted = video.damage is None
            return video
        raise _refusal(header, path, limits)
    except Ended:
        if reader.is_fresh or reader.stopped:
            raise reader.ended(path) from None
    except BadReply:
        raise VideoError(f"{path} was not read: the decoder's process sent nonsense and was ended") from None
    finally:
        _readers.give_back(reader, trusted=trusted)
    return _ask(request, path, limits)  # it may have ended while it waited, which is no fault of this file


def _refusal(header: dict[str, Any], path: Path, limits: ReadLimits) -> VideoError:
    if header.get("too_large"):
        return limits.too_large(path)
    if isinstance(header.get("error"), str):
        return VideoError(header["error"])
    return VideoError(f"{path} was not read ({header.get('fault')})")


def _log(lines: Any) -> None:
    """Log here what was logged there."""
    try:
        for name, level, text in lines:
            if name.startswith("aviot.video") and level == logging.WARNING:
                logging.getLogger(name).warning("%s", text)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadReply from error
