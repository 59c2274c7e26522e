"""Counts of a stream's frames, by what became of them."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class StreamStatus:
    """Counts of a stream at one moment.

    Of the frames pushed (`seen`), some are skipped, since the stream is faster than the sampling rate; some are
    dropped, since the encoder cannot keep up; some are late, since their time is before that of a frame already here;
    the others are encoded, or wait for it. `damaged` frames could not be decoded; most sources notice that before they
    count as seen. `clock_resets` counts how often the clock went back and times were continued from the last one.
    """

    time: float = 0.0  # seconds of the latest frame
    seen: int = 0
    skipped: int = 0
    dropped: int = 0
    late: int = 0
    encoded: int = 0
    waiting: int = 0
    damaged: int = 0
    clock_resets: int = 0
    supports: int = 0
    capacity: int = 0  # supports; 0 until the first frame has been encoded
    tokens: int = 0  # decoder tokens of all supports
    memory_bytes: int = 0
    ended: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return asdict(self)
