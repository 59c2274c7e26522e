"""Scenes: frozen descriptions of short drawn videos, and the ground truth of their frames.

The frame is the unit square, x to the right and y down; lengths are fractions of the frame's side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "heart", "moon", "hourglass")

COLOURS = {
    "red": (222, 38, 38),
    "orange": (255, 136, 16),
    "yellow": (250, 226, 40),
    "green": (34, 164, 54),
    "cyan": (40, 212, 220),
    "blue": (40, 74, 226),
    "purple": (142, 46, 196),
    "pink": (255, 128, 190),
    "white": (246, 246, 246),
    "black": (18, 18, 18),
}
"""sRGB values of each colour, far from the muted backgrounds and from each other."""

COLOUR_NAMES = tuple(COLOURS)

TEXTURES = ("plain", "striped", "dotted", "checkered", "framed")

_SHAPE, _COLOUR, _TEXTURE = ({word: i for i, word in enumerate(words)} for words in (SHAPES, COLOUR_NAMES, TEXTURES))

T = TypeVar("T")

Split = Literal["train", "validation", "test"]
Point = tuple[float, float]
Axis = Literal["x", "y"]
Frames = NDArray[np.int64]
Positions = NDArray[np.float64]  # [T,2]

Steps = tuple[tuple[int, T], ...]
"""Piecewise constant values: (first frame, value) pairs, the first at frame 0."""

Span = tuple[int, int]
"""Half-open interval of frames."""

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Jumps:
    """A trajectory that stands still and jumps: (first frame, position) pairs in order."""

    stops: tuple[tuple[int, Point], ...]

    def at(self, frames: Frames) -> Positions:
        """Return the position at each of these frames."""
        starts = [start for start, _ in self.stops]
        places = np.array([place for _, place in self.stops])
        return places[np.maximum(np.searchsorted(starts, frames, side="right") - 1, 0)]


@dataclass(frozen=True)
class Glide:
    """A piecewise linear trajectory through (frame, position) pairs; constant before the first and after the last."""

    stops: tuple[tuple[float, Point], ...]

    def at(self, frames: Frames) -> Positions:
        """Return the position at each of these frames."""
        times = [time for time, _ in self.stops]
        return np.stack([np.interp(frames, times, [place[axis] for _, place in self.stops]) for axis in (0, 1)], axis=1)


@dataclass(frozen=True)
class Orbit:
    """A circular trajectory, at angle `phase` at frame 0; `speed` in radians per frame, positive is clockwise."""

    centre: Point
    radius: float
    phase: float
    speed: float

    def at(self, frames: Frames) -> Positions:
        """Return the position at each of these frames."""
        angle = self.phase + self.speed * frames
        return np.array(self.centre) + self.radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


@dataclass(frozen=True)
class Lane:
    """A trajectory along an axis that starts over at the other end, so that no single frame shows its direction.

    `phase` (at frame 0) and `speed` (per frame) are fractions of the distance between the ends.
    """

    axis: Axis
    across: float  # the other coordinate
    ends: tuple[float, float]
    phase: float
    speed: float

    def at(self, frames: Frames) -> Positions:
        """Return the position at each of these frames."""
        along = self.ends[0] + (self.ends[1] - self.ends[0]) * np.mod(self.phase + self.speed * frames, 1.0)
        across = np.full_like(along, self.across)
        return np.stack([along, across] if self.axis == "x" else [across, along], axis=1)


@dataclass(frozen=True)
class Bounce:
    """A trajectory back and forth between two positions, `period` frames for both ways."""

    ends: tuple[Point, Point]
    period: float
    phase: float

    def at(self, frames: Frames) -> Positions:
        """Return the position at each of these frames."""
        share = np.abs(np.mod(frames / self.period + self.phase, 1.0) * 2 - 1)[:, None]
        return np.array(self.ends[0]) * (1 - share) + np.array(self.ends[1]) * share


Trajectory = Jumps | Glide | Orbit | Lane | Bounce


@dataclass(frozen=True)
class Actor:
    """One object throughout the video. Sizes are radii."""

    shape: str
    colour: Steps[str]
    texture: str
    size: Steps[float]
    path: Trajectory
    visible: tuple[Span, ...]
    tilt: float = 0.0  # radians
    front: bool = False  # drawn over everything else; otherwise later actors are drawn over earlier ones


@dataclass(frozen=True)
class Shot:
    """The background between two cuts: a drifting pattern between two colours."""

    start: int  # frame of the cut
    pattern: int  # index in `textures.PATTERNS`
    colours: tuple[Colour, Colour]
    offset: tuple[float, float]  # pixels
    velocity: tuple[float, float]  # pixels per frame


@dataclass(frozen=True)
class Camera:
    """A slow sway of the whole picture, and sensor noise."""

    sway: tuple[float, float]  # amplitudes
    period: tuple[float, float]  # frames
    phase: tuple[float, float]
    noise: float  # standard deviation, in levels of 255


@dataclass(frozen=True)
class Evidence:
    """Frames `start` to `stop` - 1, in which the actor with this index in `Scene.actors` shows the answer."""

    actor: int
    start: int
    stop: int


@dataclass(frozen=True)
class Plot:
    """One event of a scene that can be asked about.

    `slots` fill the question's template, `candidates` are its possible answers, and `combination` belongs to the
    scene's split alone. `subjects` are indices of the actors that the question mentions, in its order.
    """

    family: str
    answer: str
    candidates: tuple[str, ...]
    slots: tuple[tuple[str, str], ...]
    combination: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    subjects: tuple[int, ...]


@dataclass(frozen=True)
class Scene:
    """A video before it is drawn: objects, backgrounds, camera, and the events that can be asked about."""

    seed: int
    split: Split
    index: int
    frames: int
    fps: float
    size: int
    actors: tuple[Actor, ...]
    shots: tuple[Shot, ...]
    camera: Camera
    plots: tuple[Plot, ...]

    @property
    def times(self) -> tuple[float, ...]:
        """Timestamps of the frames in seconds."""
        return tuple(frame / self.fps for frame in range(self.frames))

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.frames / self.fps


@dataclass(frozen=True, eq=False)
class Tracks:
    """Actors in chosen frames, [O,T] each: positions with the camera's sway, radii, and words by their index."""

    visible: NDArray[np.bool_]
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    size: NDArray[np.float64]
    shape: NDArray[np.int64]
    colour: NDArray[np.int64]
    texture: NDArray[np.int64]
    tilt: NDArray[np.float64]


def tracks(scene: Scene, frames: Sequence[int] | Frames | None = None) -> Tracks:
    """Return the actors in these frames; all frames by default."""
    at = np.arange(scene.frames) if frames is None else np.asarray(frames, np.int64)
    places = np.stack([actor.path.at(at) for actor in scene.actors]) + sway(scene, at)
    colours = [_stepped([(t, _COLOUR[word]) for t, word in actor.colour], at) for actor in scene.actors]
    return Tracks(
        visible=np.array([_within(actor.visible, at) for actor in scene.actors]),
        x=places[..., 0],
        y=places[..., 1],
        size=np.array([_stepped(actor.size, at) for actor in scene.actors]),
        shape=np.array([np.full(len(at), _SHAPE[actor.shape]) for actor in scene.actors]),
        colour=np.array(colours),
        texture=np.array([np.full(len(at), _TEXTURE[actor.texture]) for actor in scene.actors]),
        tilt=np.array([np.full(len(at), actor.tilt) for actor in scene.actors]),
    )


def sway(scene: Scene, at: Frames) -> Positions:
    """Return the camera's offset in these frames [T,2]."""
    camera = scene.camera
    angles = at[:, None] * (2 * np.pi / np.array(camera.period)) + np.array(camera.phase)
    return np.array(camera.sway) * np.sin(angles)


def _stepped(steps: Sequence[tuple[int, float]] | Steps[float], at: Frames) -> NDArray:
    values = np.array([value for _, value in steps])
    if len(values) == 1:
        return np.full(len(at), values[0])
    return values[np.searchsorted([start for start, _ in steps], at, side="right") - 1]


def _within(spans: Sequence[Span], at: Frames) -> NDArray[np.bool_]:
    inside = np.zeros(len(at), bool)
    for start, stop in spans:
        inside |= (at >= start) & (at < stop)
    return inside
