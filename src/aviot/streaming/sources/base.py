"""The interface of a source, and the thread that plays one into a session."""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aviot.streaming.session import StreamError, StreamingSession
from aviot.video import Picture

POLL_SECONDS = 0.1
"""Time between two looks at something that grows."""

HURRIED = 16  # frames offered between two waits for the encoder, where the source waits for it


@dataclass(frozen=True, eq=False)
class LiveFrame:
    """A frame that has been decoded: its time in seconds (None: now), and a function that returns it as RGB."""

    time: float | None
    make: Callable[[], Picture]


class FrameSource(ABC):
    """A source of frames, opened when it is made.

    A live source delivers frames as they come into being; any other one as fast as they are asked for. `damaged` counts
    frames that could not be decoded.
    """

    live: bool = True
    damaged: int = 0

    @abstractmethod
    def frames(self, stop: threading.Event) -> Iterator[LiveFrame]:
        """Yield frames until the source ends or `stop` is set."""


class Player:
    """A thread that pushes a source's frames into a session at `speed` times the source's own speed.

    The speed concerns sources that are not live. At an infinite speed they wait for the encoder, and no frame is
    dropped.
    """

    def __init__(self, session: StreamingSession, source: FrameSource, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"the speed must be a number above 0, got {speed!r}")
        self.session, self.source, self.speed = session, source, speed
        self.error: Exception | None = None
        self.ended = threading.Event()  # all frames are in the memory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, name="aviot-source", daemon=True)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def stop(self, timeout: float | None = 10.0) -> None:
        """Stop playing and wait for the frames that have been pushed."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _play(self) -> None:
        noted = 0
        try:
            for frame in self._paced():
                self.session.offer(frame.make, frame.time)
                damaged, noted = self.source.damaged - noted, self.source.damaged
                self.session.note_damaged(damaged)
        except Exception as error:
            self.error = error
        finally:
            self.session.note_damaged(self.source.damaged - noted)
            self.session.finish()
            self._note_failure()
            self.ended.set()

    def _note_failure(self) -> None:
        """Note that the last frames could not be encoded."""
        try:
            self.session.check()
        except StreamError as error:
            self.error = self.error or error

    def _paced(self) -> Iterator[LiveFrame]:
        """Yield frames when their time has come."""
        started, first, number = time.monotonic(), None, 0
        for frame in self.source.frames(self._stop):
            if not self.source.live and frame.time is not None and math.isfinite(self.speed):
                first = frame.time if first is None else first
                due = started + (frame.time - first) / self.speed
                self._stop.wait(max(0.0, due - time.monotonic()))
            elif not self.source.live:
                number += 1
                if number % HURRIED == 0:
                    self.session.wait()
            if self._stop.is_set():
                return
            yield frame
