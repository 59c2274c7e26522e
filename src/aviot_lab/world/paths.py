"""Ways through the picture: where an object is at each frame. The frame is the unit square, x to the right, y down."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Axis = Literal["x", "y"]
Frames = NDArray[np.int64]
Places = NDArray[np.float64]  # [T,2]


@dataclass(frozen=True)
class Jumps:
    """Waits at a place, then at the next at once: (first frame, place) in order."""

    stops: tuple[tuple[int, Point], ...]

    def at(self, frames: Frames) -> Places:
        """Where it is at these frames."""
        starts = [start for start, _ in self.stops]
        places = np.array([place for _, place in self.stops])
        return places[np.maximum(np.searchsorted(starts, frames, side="right") - 1, 0)]


@dataclass(frozen=True)
class Glide:
    """Straight from each (frame, place) to the next; it waits before the first, after the last, between equal ones."""

    stops: tuple[tuple[float, Point], ...]

    def at(self, frames: Frames) -> Places:
        """Where it is at these frames."""
        times = [time for time, _ in self.stops]
        return np.stack([np.interp(frames, times, [place[axis] for _, place in self.stops]) for axis in (0, 1)], axis=1)


@dataclass(frozen=True)
class Orbit:
    """Round a centre, at `phase` at frame 0; `speed` in radians a frame, positive clockwise on the screen."""

    centre: Point
    radius: float
    phase: float
    speed: float

    def at(self, frames: Frames) -> Places:
        """Where it is at these frames."""
        angle = self.phase + self.speed * frames
        return np.array(self.centre) + self.radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


@dataclass(frozen=True)
class Lane:
    """Along a lane from end to end and, when it is through, again from the beginning.

    `phase` and `speed` are parts of the lane. Since it starts over, it is anywhere on the lane at any time, whichever
    way it goes: one frame does not say which.
    """

    axis: Axis
    across: float  # the other coordinate
    ends: tuple[float, float]
    phase: float
    speed: float

    def at(self, frames: Frames) -> Places:
        """Where it is at these frames."""
        along = self.ends[0] + (self.ends[1] - self.ends[0]) * np.mod(self.phase + self.speed * frames, 1.0)
        across = np.full_like(along, self.across)
        return np.stack([along, across] if self.axis == "x" else [across, along], axis=1)


@dataclass(frozen=True)
class Bounce:
    """To and fro between two places, `period` frames for both ways."""

    ends: tuple[Point, Point]
    period: float
    phase: float

    def at(self, frames: Frames) -> Places:
        """Where it is at these frames."""
        share = np.abs(np.mod(frames / self.period + self.phase, 1.0) * 2 - 1)[:, None]
        return np.array(self.ends[0]) * (1 - share) + np.array(self.ends[1]) * share


Path = Jumps | Glide | Orbit | Lane | Bounce


def bulge(start: Point, end: Point, share: float, height: float) -> Point:
    """A place on the way from start to end, off the straight line by `height` at its middle."""
    across = height * math.sin(math.pi * share) / max(math.dist(start, end), 1e-9)
    dx, dy = end[0] - start[0], end[1] - start[1]
    return start[0] + share * dx - across * dy, start[1] + share * dy + across * dx
