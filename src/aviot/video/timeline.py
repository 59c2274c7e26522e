"""When each frame of a video is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

FALLBACK_FPS = Fraction(25)
"""Rate of a video that tells nothing of its timing; FFmpeg assumes the same."""

MAX_SPAN = 2**53
"""Ticks between the first and the last frame beyond which timestamps are garbage: floats no longer tell them apart."""

ROUNDING = 1
"""Ticks by which a constant rate may be missed: containers round each timestamp to their clock."""


@dataclass(frozen=True)
class Timeline:
    """Frames on a clock: frame i is shown from ticks[i]·unit seconds on, the last one for tail·unit seconds.

    A constant frame rate has the frame number as its tick and the frame's duration as its unit, so that times are
    index / fps even where the container rounded them (to milliseconds in Matroska).
    """

    ticks: NDArray[np.int64]
    unit: Fraction
    tail: int

    @classmethod
    def constant(cls, total: int, fps: Fraction) -> "Timeline":
        """`total` frames of equal length."""
        return cls(np.arange(total, dtype=np.int64), 1 / fps, 1)

    @classmethod
    def of(cls, pts: NDArray[np.int64], unit: Fraction, tail: int, rates: Sequence[Fraction]) -> "Timeline":
        """Read off timestamps in presentation order; `rates` are what the container declares, `tail` is 0 if unknown.

        The first of the rates that all timestamps agree with makes the timeline constant.
        """
        ticks = pts - pts[0]
        for rate in rates:
            step = float(1 / (rate * unit))
            if np.all(np.abs(ticks - np.arange(len(ticks)) * step) <= ROUNDING):
                return cls.constant(len(ticks), rate)
        if tail <= 0:
            usual = np.median(np.diff(ticks)) if len(ticks) > 1 else 1 / (FALLBACK_FPS * unit)
            tail = max(1, int(usual))
        return cls(ticks, unit, tail)

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def duration(self) -> float:
        """Seconds from the first frame's start to the last one's end."""
        return float(self._span)

    @property
    def fps(self) -> float:
        """Frames a second, on average."""
        return float(len(self) / self._span)

    @property
    def _span(self) -> Fraction:
        return (int(self.ticks[-1]) - int(self.ticks[0]) + self.tail) * self.unit

    def times(self, indices: Sequence[int]) -> tuple[float, ...]:
        """Seconds from the first frame to each of these."""
        first = int(self.ticks[0])
        return tuple(float((int(self.ticks[i]) - first) * self.unit) for i in indices)

    def keep(self, mask: NDArray[np.bool_]) -> "Timeline":
        """Only these frames, each at its own time."""
        return Timeline(self.ticks[mask], self.unit, self.tail)


def trustworthy(pts: NDArray[np.int64]) -> bool:
    """Whether sorted timestamps are distinct and near enough to each other to be times."""
    return len(pts) > 0 and int(pts[-1]) - int(pts[0]) < MAX_SPAN and bool(np.all(pts[1:] > pts[:-1]))
