"""The original frames behind a support, in bounded memory: a contiguous range, and where its frames stand in time.

Supports merge with their neighbours, weighted by the number of frames behind each, so a support is the plain mean of a
contiguous range of encoded frames: first and count say every weight exactly, however many merges there were. Numbers
and times of the single frames are kept as knots of a piecewise linear curve over the range. Between the frames of a
steady stream no knot is needed; of an unsteady one, at most `MAX_KNOTS` are kept, and the largest error that leaving
others out can have caused is kept with them.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAX_KNOTS = 32
"""Knots per support: 1 KiB of numbers. An unsteady stream keeps each frame's own time up to so many frames."""

STEADY = 1e-6  # seconds (and frame numbers) from a straight line within which a knot says nothing new
ORDINAL, NUMBER, TIME = range(3)  # columns of the knots


@dataclass(frozen=True, eq=False)
class FrameRange:
    """A contiguous range of encoded frames, each with the same weight, 1 / count.

    Frames are named in two ways: an ordinal counts the frames that were encoded, from 0 on, without gaps; a number
    counts all frames that were pushed, so that those skipped or dropped leave gaps. An encoder that merges frames
    counts its own; the number and time are then those of its first frame and of their mean.

    `knots` [k,3] are ordinal, number and time in seconds, the first and the last frame among them. `time_error` and
    `number_error` are upper bounds on how far `times` and `numbers` can be off; 0 for what is known exactly.
    """

    knots: NDArray[np.float64]
    mean_time: float
    time_error: float = 0.0
    number_error: float = 0.0

    @classmethod
    def frame(cls, ordinal: int, number: int, time: float) -> Self:
        """Return the range of a single frame."""
        return cls(np.array([[ordinal, number, time]], np.float64), float(time))

    @property
    def first(self) -> int:
        """The ordinal of the first frame."""
        return int(self.knots[0, ORDINAL])

    @property
    def last(self) -> int:
        """The ordinal of the last frame."""
        return int(self.knots[-1, ORDINAL])

    @property
    def count(self) -> int:
        """The number of frames."""
        return self.last - self.first + 1

    @property
    def weight(self) -> float:
        """The weight of each frame in the support."""
        return 1 / self.count

    @property
    def span(self) -> tuple[float, float]:
        """The times of the first and the last frame, in seconds; exact."""
        return float(self.knots[0, TIME]), float(self.knots[-1, TIME])

    @property
    def ordinals(self) -> NDArray[np.int64]:
        """The ordinals of all frames."""
        return np.arange(self.first, self.last + 1)

    @property
    def times(self) -> NDArray[np.float64]:
        """The time of every frame in seconds, within `time_error`; never decreasing."""
        return np.interp(self.ordinals, self.knots[:, ORDINAL], self.knots[:, TIME])

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of every frame among those pushed, within `number_error`."""
        exact = np.interp(self.ordinals, self.knots[:, ORDINAL], self.knots[:, NUMBER])
        return np.rint(exact).astype(np.int64)

    def joined(self, after: "FrameRange") -> "FrameRange":
        """Return the range of both; `after` begins with the frame that follows this range's last."""
        if after.first != self.last + 1:
            raise ValueError(
                f"ranges must follow each other: one ends with {self.last}, the other is from {after.first}"
            )
        own, other = self.count, after.count
        mean = self.mean_time + (after.mean_time - self.mean_time) * (other / (own + other))
        knots, errors = _without_steady(np.concatenate((self.knots, after.knots)), len(self.knots))
        number_error = max(self.number_error, after.number_error) + errors[0]
        time_error = max(self.time_error, after.time_error) + errors[1]
        while len(knots) > MAX_KNOTS:
            knots, number_off, time_off = _without_least(knots)
            number_error, time_error = number_error + number_off, time_error + time_off
        return FrameRange(knots, mean, time_error, number_error)


def _without_steady(knots: NDArray[np.float64], joint: int) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Drop those of the two knots at a joint that lie on a straight line, and return the errors that this makes."""
    number_off = time_off = 0.0
    for place in (joint, joint - 1):
        if 0 < place < len(knots) - 1:
            numbers, times = _residuals(knots[place - 1 : place + 2])
            if numbers[0] <= STEADY and times[0] <= STEADY:
                knots = np.delete(knots, place, 0)
                number_off, time_off = number_off + float(numbers[0]), time_off + float(times[0])
    return knots, (number_off, time_off)


def _without_least(knots: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """Drop the inner knot whose time is nearest to the line between its neighbours, and return the errors."""
    numbers, times = _residuals(knots)
    least = int(times.argmin())
    return np.delete(knots, least + 1, 0), float(numbers[least]), float(times[least])


def _residuals(knots: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distances of the inner knots' numbers and times from the lines between their neighbours.

    Curves through a knot and without it differ most at the knot itself.
    """
    before, at, after = knots[:-2], knots[1:-1], knots[2:]
    share = ((at - before)[:, :1]) / ((after - before)[:, :1])
    off = np.abs(before + (after - before) * share - at)
    return off[:, NUMBER], off[:, TIME]
