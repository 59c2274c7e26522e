"""The way of a frame from the producer to the encoder: its time, the sampling rate, and a queue that never blocks."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from aviot.video import Picture

LATE = 1.0
"""Seconds by which a frame may come too late for its place: it is left out. When times go back by more, the clock was
set back, and times continue from the last one."""

EARLY = 0.1  # of the sampling interval, by which frames may come before their turn: clocks jitter
QUEUE_FRAMES = 64
QUEUE_BYTES = 2**28
"""Frames, and bytes of frames, that wait for the encoder at most."""


@dataclass(frozen=True, eq=False)
class QueuedFrame:
    """A frame that waits to be encoded: its number among those pushed, and its time in seconds."""

    picture: Picture
    number: int
    time: float


class StreamClock:
    """Turns the times that a producer gives into increasing ones, counted from the first frame.

    `last`, `offset` and `step` are those at which an earlier run ended: times continue from there.
    """

    def __init__(self, last: float | None = None, offset: float = 0.0, step: float = 0.0) -> None:
        self.last, self.offset, self.step = last, offset, step
        self.resets = 0
        self._resumed = last is not None

    def at(self, time: float) -> float | None:
        """Return a frame's time in the stream; None for a frame that comes after a later one."""
        if self.last is None:
            self.last, self.offset = 0.0, -time
            return self.last
        now = time + self.offset
        if now <= self.last:
            if not self._resumed and self.last - now < LATE:
                return None
            self.resets += not self._resumed
            now = self.last + (self.step or LATE)
            self.offset = now - time
        elif not self._resumed:
            self.step = now - self.last
        self._resumed, self.last = False, now
        return now


class FrameSampler:
    """Chooses frames at a rate by their times; of a slower stream, every frame."""

    def __init__(self, fps: float) -> None:
        self.interval = 1 / fps
        self._due = -math.inf

    def takes(self, time: float) -> bool:
        """Return whether to take the frame of this time."""
        if time < self._due - EARLY * self.interval:
            return False
        on_time = time < self._due + self.interval
        self._due = (self._due if on_time else time) + self.interval
        return True


class FrameQueue:
    """Frames that wait for the encoder, at most so many; when there are more, every second one is dropped.

    After that, only every second new frame is let in, and fewer again if the queue fills once more, so that what is
    encoded is evenly spaced; the rate doubles again whenever the queue has been emptied.
    """

    def __init__(self, frames: int = QUEUE_FRAMES, most_bytes: int = QUEUE_BYTES) -> None:
        self.frames, self.most_bytes = frames, most_bytes
        self.dropped = 0
        self._waiting: list[QueuedFrame] = []
        self._bytes = self._offered = self._taken = 0
        self._stride = 1
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    def admits(self) -> bool:
        """Return whether the next frame is let in; one that is not counts as dropped."""
        with self._changed:
            self._offered += 1
            admitted = self._offered % self._stride == 0
            self.dropped += not admitted
            return admitted

    def put(self, frame: QueuedFrame) -> None:
        """Append a frame that was admitted, and thin the queue out if it is full; a closed one drops it."""
        with self._changed:
            if self._closed:
                self.dropped += 1
                return
            self._waiting.append(frame)
            self._bytes += frame.picture.nbytes
            while len(self._waiting) > 1 and (len(self._waiting) > self.frames or self._bytes > self.most_bytes):
                self._thin_out()
            self._changed.notify_all()

    def _thin_out(self) -> None:
        kept = self._waiting[::-1][::2][::-1]  # the latest stays
        self.dropped += len(self._waiting) - len(kept)
        self._waiting, self._bytes = kept, sum(frame.picture.nbytes for frame in kept)
        self._stride *= 2
        self._offered = 0

    def take(self, most: int, multiple: int = 1) -> Sequence[QueuedFrame]:
        """Wait for frames and remove the first ones, at most so many, in multiples (at the end also less).

        Returns none when the queue was closed and is empty. `done` says that they have been encoded.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._waiting) >= multiple)
            count = min(most, len(self._waiting))
            if count >= multiple:
                count -= count % multiple
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            self._bytes -= sum(frame.picture.nbytes for frame in taken)
            self._taken = len(taken)
            if len(self._waiting) < multiple:
                self._stride, self._offered = max(1, self._stride // 2), 0
            return taken

    def done(self, encoded: bool) -> None:
        """Say that the frames taken last have been encoded; if they never will be, they count as dropped."""
        with self._changed:
            self.dropped += 0 if encoded else self._taken
            self._taken = 0
            self._changed.notify_all()

    def wait(self, fewer_than: int, timeout: float | None) -> bool:
        """Wait until fewer frames than this wait and none is being encoded; return False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._taken == 0 and len(self._waiting) < fewer_than, timeout)

    @property
    def pending(self) -> int:
        """The frames that wait or are being encoded."""
        return len(self._waiting) + self._taken

    def close(self) -> None:
        """Let in no more frames; those that wait can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def discard(self) -> None:
        """Drop all frames that wait."""
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting, self._bytes = [], 0
            self._changed.notify_all()
