"""Reading of untrusted videos in separate processes: a file that hangs, exhausts memory or crashes fails alone.

A reader process that succeeded is reused for the next file; one that had any trouble is ended.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from aviot.video.checks import DEFAULT_LIMITS, ReadLimits, VideoError, reason
from aviot.video.frames import Scaling, Video
from aviot.video.patch_scaling import PatchScaling
from aviot.video.read import VideoSource, read_video
from aviot.video.sampling import DEFAULT_FPS, DEFAULT_MAX_FRAMES, Sampling, SamplingMode, check_rate
from aviot.video.worker import (
    PREFIX_BYTES,
    PROGRESS_STEPS,
    InvalidReply,
    parse_header,
    rebuild_video,
    unpack_prefix,
)

START_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from aviot.video.worker import main; main()"

POLL_SECONDS = 0.05
"""Time between two checks of a reader's memory; a decoder fills about 100 MB meanwhile."""

MAX_IDLE, MAX_FILES, MAX_IDLE_MEMORY = 2, 100, 300_000_000
"""Idle readers that stay alive, files per reader, and bytes that an idle reader may hold."""


class ReaderExited(Exception):
    """Raised when a reader exits before its reply is complete."""


class Reader:
    """A process that reads one video at a time."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [*(path for path in sys.path if isinstance(path, str) and path), root]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START_CODE, json.dumps(paths)],
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

    def ask(self, request: dict[str, Any], reading: "Reading") -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """Have a file read and return the reply's header and pixels; VideoError, ReaderExited or InvalidReply."""
        self._files += 1
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            ends = time.monotonic() + request["seconds"]
            receive = partial(self._receive, selector, reading, ends)
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
            except BrokenPipeError as error:
                raise ReaderExited from error
            header, pixels = unpack_prefix(receive(PREFIX_BYTES).tobytes(), reading.limits.memory)
            while not header:  # a message of progress
                reading.note(pixels / PROGRESS_STEPS, ends)
                header, pixels = unpack_prefix(receive(PREFIX_BYTES).tobytes(), reading.limits.memory)
            return parse_header(receive(header).tobytes()), receive(pixels)

    def _receive(
        self, selector: selectors.BaseSelector, reading: "Reading", ends: float, count: int
    ) -> NDArray[np.uint8]:
        """Return the next `count` bytes; VideoError if the process exceeds its time or memory, or nobody waits."""
        data = np.empty(count, np.uint8)
        remaining, next_check = data.data, 0.0
        while remaining:
            if selector.select(POLL_SECONDS):
                received = os.readv(self._replies.fileno(), [remaining])
                if not received:
                    raise ReaderExited
                remaining = remaining[received:]
            if (now := time.monotonic()) < next_check:
                continue
            next_check = now + POLL_SECONDS
            if self._memory() > reading.limits.memory:
                raise reading.limits.too_large(reading.path)
            if remaining and now > ends:
                raise reading.limits.too_slow(reading.path)
            if remaining:
                reading.check_wanted()
        return data

    @property
    def is_fresh(self) -> bool:
        """True if no file was read before the current one."""
        return self._files <= 1

    @property
    def is_reusable(self) -> bool:
        """True if this process can read another file."""
        return not self.stopped and self._files < MAX_FILES and self._memory() < MAX_IDLE_MEMORY

    def _memory(self) -> int:
        """Return the bytes of memory that the process holds; 0 if the system does not report it."""
        try:
            with open(f"/proc/{self._process.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def end(self) -> int:
        """End the process if it is still running; return its exit code, negative for a signal."""
        if self._process.poll() is None:
            self._process.kill()
        code = self._process.wait()
        self.close_pipes()
        return code

    def close_pipes(self) -> None:
        """Close this end of the pipes."""
        self._requests.close()
        self._replies.close()

    def stop(self) -> None:
        """End the process from another thread than the one that waits for it."""
        self.stopped = True
        self._process.kill()

    def exit_error(self, path: Path) -> VideoError:
        """Return an error that tells why the process exited while it read a file."""
        try:
            code = self._process.wait(1)  # its pipe closes a moment before it exits
        except subprocess.TimeoutExpired:
            code = self.end()
        if self.stopped:
            return VideoError(f"{path} was not read: reading was stopped")
        if code >= 0:
            return VideoError(f"{path} was not read: its reader process ended with exit code {code}")
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        if name == "SIGKILL":
            return VideoError(f"{path} was not read: the system killed the decoder, perhaps for lack of memory")
        return VideoError(f"{path} made the decoder crash (signal {-code}, {name}); re-encode it")


@dataclass(frozen=True)
class Reading:
    """One file to read: its limits, and functions that tell when nobody waits for it any more, and hear of progress."""

    path: Path
    limits: ReadLimits
    abandoned: Callable[[], bool]
    progress: Callable[[float], None]

    def check_wanted(self) -> None:
        """Raise VideoError if nobody waits any more."""
        if self.abandoned():
            raise VideoError(f"{self.path} was not read: nobody waits for it any more")

    def note(self, share: float, ends: float) -> None:
        """Pass progress on; VideoError after the deadline, however often a reader tells of progress."""
        self.check_wanted()
        if time.monotonic() > ends:
            raise self.limits.too_slow(self.path)
        self.progress(min(1.0, share))


class ReaderPool:
    """Busy and idle readers; safe to use from several threads."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        self._busy: set[Reader] = set()

    def acquire(self) -> Reader:
        """Return an idle reader, or a new one."""
        with self._lock:
            reader = self._idle.pop() if self._idle else Reader()
            self._busy.add(reader)
        return reader

    def release(self, reader: Reader, *, trusted: bool) -> None:
        """Make a reader idle if it is trusted with another file, else end it."""
        with self._lock:
            self._busy.discard(reader)
            reusable = trusted and reader.is_reusable and len(self._idle) < MAX_IDLE
            if reusable:
                self._idle.append(reader)
        if not reusable:
            reader.end()

    def stop(self) -> None:
        """End all readers, busy and idle."""
        with self._lock:
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for reader in busy:
            reader.stop()
        for reader in idle:
            reader.end()

    def forget(self) -> None:
        """Leave the readers, in a forked process, to the process that started them."""
        for reader in (*self._idle, *self._busy):
            reader.close_pipes()
        self._reset()


_readers = ReaderPool()
atexit.register(_readers.stop)
os.register_at_fork(after_in_child=_readers.forget)


def stop_reading() -> None:
    """End every read that is in progress in another thread; each raises VideoError there."""
    _readers.stop()


def read_isolated(
    source: VideoSource,
    *,
    fps: float = DEFAULT_FPS,
    max_frames: int = DEFAULT_MAX_FRAMES,
    frames: int | None = None,
    transform: Scaling | PatchScaling | None = None,
    source_fps: float | None = None,
    sampling: SamplingMode = "times",
    limits: ReadLimits = DEFAULT_LIMITS,
    abandoned: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda _: None,
) -> Video:
    """Read a video like `read_video`, with the same result, in a process of limited time and memory.

    `transform` is a scaling or None, since a function cannot be sent to another process. Frames in memory are read in
    this process. `abandoned` is called while a file is read; the process ends once it returns True. `progress` is
    called now and then with the share of the frames that are read. Raises VideoError with the cause if a file is too
    slow, takes too much memory or crashes the decoder.
    """
    chosen = Sampling(fps=fps, max_frames=max_frames, frames=frames, mode=sampling)
    rate = None if source_fps is None else check_rate("source_fps", source_fps)
    options: dict[str, Any] = {
        "fps": float(chosen.fps),
        "max_frames": int(chosen.max_frames),
        "frames": None if frames is None else int(frames),
        "source_fps": rate,
        "sampling": chosen.mode,
    }
    if not isinstance(source, (str, os.PathLike)) or not isinstance(os.fspath(source), str):
        return read_video(source, transform=transform, **options)
    if transform is not None and not isinstance(transform, (Scaling, PatchScaling)):
        raise TypeError(
            f"transform must be a Scaling or a PatchScaling, which can be sent to another process, got {transform!r}"
        )
    path = Path(source)
    request = {
        "source": os.fspath(source),
        "folder": _working_directory(),
        "sampling": options,
        "scaling": None if transform is None else {type(transform).__name__: asdict(transform)},
        "seconds": limits.deadline(path),
        "limits": asdict(limits),
    }
    return _request_video(request, Reading(path, limits, abandoned, progress))


def _working_directory() -> str:
    """Return the directory that relative paths start from; the root if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def _request_video(request: dict[str, Any], reading: Reading) -> Video:
    reader, path = _readers.acquire(), reading.path
    trusted = False
    try:
        header, pixels = reader.ask(request, reading)
        _log(header.get("warnings"))
        if "video" in header:
            video = rebuild_video(header["video"], pixels)
            trusted = video.damage is None
            return video
        raise _read_error(header, path, reading.limits)
    except ReaderExited:
        if reader.is_fresh or reader.stopped:
            raise reader.exit_error(path) from None
    except InvalidReply:
        raise VideoError(f"{path} was not read: its reader process sent an invalid reply and was ended") from None
    finally:
        _readers.release(reader, trusted=trusted)
    return _request_video(request, reading)  # a reused reader may have exited while idle: not this file's fault


def _read_error(header: dict[str, Any], path: Path, limits: ReadLimits) -> VideoError:
    if header.get("too_large"):
        return limits.too_large(path)
    if isinstance(header.get("error"), str):
        return VideoError(header["error"])
    return VideoError(f"{path} was not read ({header.get('fault')})")


def _log(lines: Any) -> None:
    """Log the warnings of the reader process in this one."""
    try:
        for name, level, text in lines:
            if name.startswith("aviot.video") and level == logging.WARNING:
                logging.getLogger(name).warning("%s", text)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidReply from error
