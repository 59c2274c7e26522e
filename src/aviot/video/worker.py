"""The reader process behind `aviot.video.isolated`, and the messages that it exchanges with its parent.

Requests arrive on stdin, one JSON object per line; replies leave on stdout as a JSON header and raw pixels. A malicious
file may have taken over the reader, so the parent validates everything that it sends, and never unpickles any of it.
The process imports torch only if frames are scaled by it (`PatchScaling`): otherwise it starts in a tenth of a second
and leaves the memory to the decoder.
"""

import json
import logging
import math
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aviot.video.checks import ReadLimits, VideoError, VideoTooLarge
from aviot.video.frames import Damage, Picture, Scaling, Transform, Video
from aviot.video.patch_scaling import PatchScaling
from aviot.video.read import read_video

PREFIX_BYTES = 16
"""Size of a reply's prefix: the lengths of its header and of its pixels, eight bytes each."""

PROGRESS_STEPS = 1000
"""A prefix without a header tells progress: the second number is the share of the frames that are read, in thousandths.
"""

PROGRESS_SECONDS = 0.1
"""Least time between two messages of progress."""

MAX_HEADER_BYTES = 2**26
"""Size of the largest accepted header: two million frames with their times."""

GRACE_SECONDS = 10
"""Seconds after its deadline at which a reader ends by itself: its parent is gone then."""

MAX_ALARM = 2**30
"""Seconds of the longest alarm that the system accepts."""

LOGGER = "aviot"


class InvalidReply(Exception):
    """Raised for a reply that no intact reader sends."""


def pack_prefix(header: bytes, pixels: int) -> bytes:
    """Return the prefix of a reply."""
    return len(header).to_bytes(8, "big") + pixels.to_bytes(8, "big")


def unpack_prefix(prefix: bytes, max_pixels: int) -> tuple[int, int]:
    """Return the lengths of a reply's header and pixels in bytes; InvalidReply if they are too large."""
    header, pixels = int.from_bytes(prefix[:8], "big"), int.from_bytes(prefix[8:], "big")
    if header > MAX_HEADER_BYTES or pixels > max_pixels:
        raise InvalidReply
    return header, pixels


def describe_video(video: Video) -> dict[str, Any]:
    """Return the fields of a video without its pixels, as JSON values."""
    return {
        "shape": list(video.frames.shape),
        "indices": list(video.indices),
        "times": list(video.times),
        "duration": video.duration,
        "fps": video.fps,
        "total": video.total,
        "name": video.name,
        "comment": video.comment,
        "damage": None if video.damage is None else asdict(video.damage),
    }


def parse_header(data: bytes) -> dict[str, Any]:
    """Return the header of a reply; InvalidReply unless it is a JSON object."""
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidReply from error
    if not isinstance(header, dict):
        raise InvalidReply
    return header


def rebuild_video(description: Any, pixels: NDArray[np.uint8]) -> Video:
    """Return the video of a description and its pixels; InvalidReply if they do not fit each other."""
    try:
        shape = tuple(map(_count, description["shape"]))
        indices, times = tuple(map(_count, description["indices"])), tuple(map(_number, description["times"]))
        damage = description["damage"]
        video = Video(
            frames=pixels.reshape(shape),
            indices=indices,
            times=times,
            duration=_number(description["duration"]),
            fps=_number(description["fps"]),
            total=_count(description["total"]),
            name=_text(description["name"]),
            comment=_text(description["comment"]),
            damage=None if damage is None else _damage(damage),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidReply from error
    if math.prod(shape) != pixels.size or not len(indices) == len(times) == shape[0]:
        raise InvalidReply
    return video


def _damage(description: Any) -> Damage:
    claimed, missing = _number(description["claimed_seconds"]), _number(description["missing_seconds"])
    return Damage(claimed, missing, _count(description["decoder_errors"]))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(value)
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


class LogCollector(logging.Handler):
    """A log handler that collects warnings for the parent process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store a log record."""
        self.lines.append((record.name, record.levelno, record.getMessage()))


class CountingTransform:
    """A transform that tells the share of the frames that have passed through it, now and then."""

    def __init__(self, inner: Transform | None, tell: Callable[[float], None]) -> None:
        self._inner, self._tell = inner, tell
        self._size = self._seen = 0
        self._next = 0.0

    def for_frames(self, size: int) -> "CountingTransform":
        """Expect this number of frames from now on."""
        for_frames = getattr(self._inner, "for_frames", None)
        made = CountingTransform(self._inner if for_frames is None else for_frames(size), self._tell)
        made._size = size
        return made

    def __call__(self, picture: Picture) -> Any:
        """Transform a frame."""
        made = picture if self._inner is None else self._inner(picture)
        self._seen += 1
        if self._size and (now := time.monotonic()) >= self._next:
            self._next = now + PROGRESS_SECONDS
            self._tell(min(1.0, self._seen / self._size))
        return made


def main() -> None:
    """Answer requests, one JSON object per line, until stdin ends."""
    replies = os.dup(1)
    os.dup2(2, 1)  # output that a library prints must not mix with replies
    _restrict()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    collector = LogCollector()
    logging.getLogger(LOGGER).addHandler(collector)
    for line in sys.stdin.buffer:
        collector.lines.clear()
        header, pixels = _answer(json.loads(line), lambda share: _tell_progress(replies, share))
        data = json.dumps(header | {"warnings": collector.lines}).encode()
        for part in (pack_prefix(data, pixels.size), data, pixels.data):
            _write(replies, memoryview(part).cast("B"))
        signal.alarm(0)


def _tell_progress(replies: int, share: float) -> None:
    _write(replies, memoryview(pack_prefix(b"", round(PROGRESS_STEPS * share))))


def _answer(request: dict[str, Any], tell: Callable[[float], None]) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Read the requested video; return the reply's header and pixels."""
    signal.alarm(min(math.ceil(request["seconds"]) + GRACE_SECONDS, MAX_ALARM))
    limits = ReadLimits(**request["limits"])
    _limit_memory(limits.memory)
    no_pixels = np.zeros(0, np.uint8)
    try:
        scaling = None if request["scaling"] is None else _scaling(**request["scaling"])
        os.chdir(request["folder"])
        counting = CountingTransform(scaling, tell)
        video = read_video(request["source"], transform=counting, limits=limits, decoder="cpu", **request["sampling"])
        return {"video": describe_video(video)}, np.ascontiguousarray(video.frames).reshape(-1)
    except (MemoryError, VideoTooLarge):
        return {"too_large": True}, no_pixels
    except VideoError as error:
        return {"error": str(error)}, no_pixels
    except Exception as error:  # a bug of ours, or the file has been removed
        return {"fault": f"{type(error).__name__}: {error}"}, no_pixels


def _scaling(**given: dict[str, Any]) -> Scaling | PatchScaling:
    """Return the transform of a request: the name of its class, and its numbers."""
    ((name, numbers),) = given.items()
    return Scaling(**numbers) if name == Scaling.__name__ else _patch_scaling(**numbers)


def _patch_scaling(*, size: list[int] | None, **numbers: Any) -> PatchScaling:
    tempfile.tempdir = os.sep  # dill, which torch imports if it is there, asks for one, and none can be written to

    import torch

    torch.set_num_threads(1)  # the process is limited in memory, and each thread takes some
    return PatchScaling(size=None if size is None else (size[0], size[1]), **numbers)


def _restrict() -> None:
    """Leave Ctrl-C to the parent, and forbid writing files and core dumps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    try:
        import resource
    except ModuleNotFoundError:
        return
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))


def _limit_memory(max_bytes: int) -> None:
    """Make allocations beyond the limit fail; the parent checks memory too, but may be late."""
    if sys.platform == "linux":  # elsewhere this limit does not cover most of a decoder's allocations
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _end_with_parent() -> None:
    """Exit as soon as the other end of stdin is closed, even while a video is being read."""
    poll = select.poll()
    poll.register(0, 0)  # no events: a hang-up is always reported
    poll.poll()
    os._exit(0)


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
