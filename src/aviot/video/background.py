"""Reading of a video in a thread of its own, whose frames can be used while later ones are still decoded."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import signature
from types import TracebackType
from typing import Any

from aviot.video.frames import Frames, Video


class ReadingStopped(Exception):
    """Raised inside a reading that nobody waits for any more."""


class Arrivals:
    """The frames of one reading as they arrive, passed from the thread that reads to one that uses them.

    Nothing is queued: the frames lie in the video's own array, and only their number is passed on.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: Frames | None = None
        self._count = 0
        self._ended = False
        self._stopped = False

    def note(self, frames: Frames, count: int) -> None:
        """Announce that the first `count` slots are filled: the `progress` of `read_video`."""
        with self._changed:
            if self._stopped:
                raise ReadingStopped
            self._frames, self._count = frames, count
            self._changed.notify_all()

    def end(self) -> None:
        """Announce that no more frames arrive."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End the reading at its next frame."""
        with self._changed:
            self._stopped = True

    def wait(self, frames: Frames | None, count: int) -> tuple[Frames | None, int, bool]:
        """Wait for more frames than `count` of `frames`, for other slots, or for the end.

        Returns the slots, the number of them that are filled, and whether no more arrive.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._frames is not frames or self._count > count)
            return self._frames, self._count, self._ended

    @property
    def state(self) -> tuple[Frames | None, int]:
        """The slots, and the number of them that are filled."""
        with self._changed:
            return self._frames, self._count


class BackgroundReading:
    """A video that is being read; leaving its block stops the reading and waits for that.

    It is also a reader, with the arguments of `read_video`: asked for the very video that it reads, it waits for that,
    and for anything else it reads anew. So reading can begin before the model is loaded that the frames are for.
    """

    def __init__(self, read: Callable[..., Video], *source: Any, **how: Any) -> None:
        self.arrivals = Arrivals()
        self._read, self._source, self._how = read, source, how
        self._pool = ThreadPoolExecutor(1, "aviot-read")
        self._reading: Future[Video] = self._pool.submit(self._run)

    def _run(self) -> Video:
        try:
            more = {"progress": self.arrivals.note} if reports_progress(self._read) else {}
            return self._read(*self._source, **self._how, **more)
        finally:
            self.arrivals.end()

    def result(self) -> Video:
        """Wait for the video, or for the error that reading it ended with."""
        return self._reading.result()

    def __call__(self, source: Any, *, progress: Callable[[Frames, int], None] | None = None, **how: Any) -> Video:
        """Return the video, calling `progress` in this thread, or read another one."""
        if (source,) != self._source or not _same(how, self._how):
            more = {"progress": progress} if progress is not None and reports_progress(self._read) else {}
            return self._read(source, **how, **more)
        frames, count, ended = None, 0, False
        while progress is not None and not ended:
            frames, count, ended = self.arrivals.wait(frames, count)
            if frames is not None:
                progress(frames, count)
        return self.result()

    def __enter__(self) -> "BackgroundReading":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.arrivals.stop()
        self._pool.shutdown()


def _same(how: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two sets of options read the same frames; None stands for an option that is not given."""
    given, before = ({name: value for name, value in each.items() if value is not None} for each in (how, other))
    return given == before


def reports_progress(reader: Callable[..., Video]) -> bool:
    """Return whether a reader tells of frames as they arrive."""
    return "progress" in signature(reader).parameters
