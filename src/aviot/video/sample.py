"""Which frames of a video are looked at."""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from aviot.video.errors import VideoError

DEFAULT_FPS = 2.0
DEFAULT_MAX_FRAMES = 224


@dataclass(frozen=True)
class Sampling:
    """Every stride-th frame, at most `max_frames`; or a forced number, evenly spread.

    With stride = max(1, round(native fps / fps)) the frames are 0, stride, 2·stride, … If those are more than
    `max_frames`, or `frames` forces a count (which may be larger than `max_frames`), they are the integer linspace over
    the whole video instead. No frame is taken twice: a forced count above the length gives every frame once.
    """

    fps: float = DEFAULT_FPS
    max_frames: int = DEFAULT_MAX_FRAMES
    frames: int | None = None

    def __post_init__(self) -> None:
        check_rate("fps", self.fps)
        _check_count("max_frames", self.max_frames)
        if self.frames is not None:
            _check_count("frames", self.frames)

    def indices(self, total: int, native_fps: float) -> tuple[int, ...]:
        """Frame numbers to take from a video of `total` frames at `native_fps`, ascending."""
        if self.frames is not None:
            return _spread(total, self.frames)
        stride = max(1, round(native_fps / self.fps))
        if -(-total // stride) > self.max_frames:
            return _spread(total, self.max_frames)
        return tuple(range(0, total, stride))


def _spread(total: int, count: int) -> tuple[int, ...]:
    return tuple(np.linspace(0, total - 1, min(count, total), dtype=int).tolist())


def check_rate(name: str, value: object) -> float:
    """Refuse anything but a finite number of frames a second above zero."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise VideoError(f"{name} must be a number of frames a second above 0, got {value!r}")
    return float(value)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise VideoError(f"{name} must be a whole number of at least 1, got {value!r}")
