"""Frame times of a video, and the choice of frames to sample from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from aviot.video.checks import VideoError

DEFAULT_FPS = 2.0
DEFAULT_MAX_FRAMES = 224

FALLBACK_FPS = Fraction(25)
"""Rate assumed for a video without timing information; FFmpeg assumes the same."""

MAX_SPAN = 2**53
"""Ticks between first and last frame from which on timestamps are invalid: floats no longer distinguish them."""

ROUNDING = 1
"""Ticks by which timestamps may deviate from a constant rate: containers round each to their clock."""


SamplingMode = Literal["times", "keyframes"]
"""Whether the frames at the sampled times are taken, or the keyframes nearest to them, which decode alone."""


@dataclass(frozen=True)
class Sampling:
    """Every stride-th frame, at most `max_frames`; or a fixed number of frames, evenly spread.

    With stride = max(1, round(native fps / fps)) the frames are 0, stride, 2·stride, … If those are more than
    `max_frames`, or `frames` fixes a count (which may exceed `max_frames`), they are the integer linspace over the
    whole video instead. No frame is taken twice: a fixed count above the length gives every frame once.

    With the mode "keyframes", the nearest keyframe of a file is taken instead of each frame, each at most once, so that
    there may be fewer; folders, arrays and files without keyframes or timestamps are sampled as with "times".
    """

    fps: float = DEFAULT_FPS
    max_frames: int = DEFAULT_MAX_FRAMES
    frames: int | None = None
    mode: SamplingMode = "times"

    def __post_init__(self) -> None:
        check_rate("fps", self.fps)
        _check_count("max_frames", self.max_frames)
        if self.frames is not None:
            _check_count("frames", self.frames)
        if self.mode not in get_args(SamplingMode):
            raise VideoError(f"sampling must be {' or '.join(get_args(SamplingMode))}, got {self.mode!r}")

    def indices(self, total: int, native_fps: float) -> tuple[int, ...]:
        """Return the frame numbers to take from a video of `total` frames at `native_fps`, in ascending order."""
        if self.frames is not None:
            return _spread(total, self.frames)
        stride = max(1, round(native_fps / self.fps))
        if -(-total // stride) > self.max_frames:
            return _spread(total, self.max_frames)
        return tuple(range(0, total, stride))


def _spread(total: int, count: int) -> tuple[int, ...]:
    return tuple(np.linspace(0, total - 1, min(count, total), dtype=int).tolist())


def check_rate(name: str, value: object) -> float:
    """Return a frame rate as a float; raise VideoError unless it is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise VideoError(f"{name} must be a number of frames per second above 0, got {value!r}")
    return float(value)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise VideoError(f"{name} must be a whole number of at least 1, got {value!r}")


@dataclass(frozen=True)
class Timeline:
    """Presentation times: frame i starts at ticks[i]·unit seconds, and the last one lasts tail·unit seconds.

    A constant frame rate has the frame number as its tick and the frame's duration as its unit, so that times are
    index / fps even if the container rounded them (to milliseconds in Matroska).
    """

    ticks: NDArray[np.int64]
    unit: Fraction
    tail: int

    @classmethod
    def constant(cls, total: int, fps: Fraction) -> "Timeline":
        """Return the timeline of `total` frames of equal duration."""
        return cls(np.arange(total, dtype=np.int64), 1 / fps, 1)

    @classmethod
    def from_pts(cls, pts: NDArray[np.int64], unit: Fraction, tail: int, rates: Sequence[Fraction]) -> "Timeline":
        """Return the timeline of timestamps in presentation order; a `tail` of 0 is unknown.

        The first of `rates`, those the container declares, that fits all timestamps makes the timeline constant.
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
        """Seconds from the start of the first frame to the end of the last."""
        return float(self._span)

    @property
    def fps(self) -> float:
        """Average number of frames per second."""
        return float(len(self) / self._span)

    @property
    def _span(self) -> Fraction:
        return (int(self.ticks[-1]) - int(self.ticks[0]) + self.tail) * self.unit

    def times(self, indices: Sequence[int]) -> tuple[float, ...]:
        """Return the seconds from the first frame to each of these."""
        first = int(self.ticks[0])
        return tuple(float((int(self.ticks[i]) - first) * self.unit) for i in indices)

    def select(self, mask: NDArray[np.bool_]) -> "Timeline":
        """Return the timeline of a subset of the frames, each at its own time."""
        return Timeline(self.ticks[mask], self.unit, self.tail)


def are_valid_timestamps(pts: NDArray[np.int64]) -> bool:
    """Return whether sorted timestamps are distinct and within a plausible span."""
    return len(pts) > 0 and int(pts[-1]) - int(pts[0]) < MAX_SPAN and bool(np.all(pts[1:] > pts[:-1]))
