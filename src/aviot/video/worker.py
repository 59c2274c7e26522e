"""The process that reads videos for `aviot.video.isolated`: requests come in on stdin, videos go out on stdout.

It imports no torch, so that it starts in a tenth of a second and leaves the memory to the decoder.
"""

import json
import logging
import math
import os
import select
import signal
import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aviot.video.errors import VideoError, VideoTooLarge
from aviot.video.messages import describe_video, pack_prefix
from aviot.video.read import read_video
from aviot.video.scaling import Scaling

GRACE = 10
"""Seconds after its deadline at which a reader ends by itself: whoever asked is gone then."""

MAX_ALARM = 2**30
"""Seconds that the system can count for an alarm."""

LOGGER = "aviot"


class Warnings(logging.Handler):
    """Collects what is logged, for the process that asked."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append((record.name, record.levelno, record.getMessage()))


def main() -> None:
    """Answer requests, one JSON object per line, until there are no more."""
    replies = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no reply
    _restrict()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings = Warnings()
    logging.getLogger(LOGGER).addHandler(warnings)
    for line in sys.stdin.buffer:
        warnings.lines.clear()
        header, pixels = _answer(json.loads(line))
        data = json.dumps(header | {"warnings": warnings.lines}).encode()
        for part in (pack_prefix(data, pixels.size), data, pixels.data):
            _write(replies, memoryview(part).cast("B"))
        signal.alarm(0)


def _answer(request: dict[str, Any]) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Read what is asked for; returns the reply's header and pixels."""
    signal.alarm(min(math.ceil(request["seconds"]) + GRACE, MAX_ALARM))
    _limit_memory(request["memory"])
    scaling = None if request["scaling"] is None else Scaling(**request["scaling"])
    nothing = np.zeros(0, np.uint8)
    try:
        os.chdir(request["folder"])
        video = read_video(request["source"], transform=scaling, **request["sampling"])
        return {"video": describe_video(video)}, np.ascontiguousarray(video.frames).reshape(-1)
    except (MemoryError, VideoTooLarge):
        return {"too_large": True}, nothing
    except VideoError as error:
        return {"error": str(error)}, nothing
    except Exception as error:  # a mistake of ours, or the file is gone
        return {"fault": f"{type(error).__name__}: {error}"}, nothing


def _restrict() -> None:
    """Leave Ctrl-C to the parent, write no file and no core dump."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    try:
        import resource
    except ModuleNotFoundError:
        return
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))


def _limit_memory(most: int) -> None:
    """Let allocations fail from here on; the parent watches too, but may be late."""
    if sys.platform == "linux":  # elsewhere this limit leaves out most of what a decoder allocates
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _end_with_parent() -> None:
    """End at once when the other end of stdin is closed, also in the middle of a video."""
    poll = select.poll()
    poll.register(0, 0)  # no events: hanging up is always told
    poll.poll()
    os._exit(0)


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
