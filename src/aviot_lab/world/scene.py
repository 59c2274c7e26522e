"""A scene: a small frozen description from which every frame and every question follows."""

from dataclasses import dataclass
from typing import TypeVar

from aviot_lab.world.paths import Path
from aviot_lab.world.split import Split

T = TypeVar("T")

Steps = tuple[tuple[int, T], ...]
"""A value from each frame on: (first frame, value), the first at frame 0."""

Span = tuple[int, int]
"""Frames from the first to before the second."""

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Actor:
    """One object through the whole video. Sizes are radii, in parts of the frame's side."""

    shape: str
    colour: Steps[str]
    texture: str
    size: Steps[float]
    path: Path
    visible: tuple[Span, ...]
    tilt: float = 0.0  # radians
    front: bool = False  # before everything else; otherwise later actors are before earlier ones


@dataclass(frozen=True)
class Shot:
    """What is behind the objects from a cut to the next: a pattern between two colours, drifting."""

    start: int
    pattern: int
    colours: tuple[Colour, Colour]
    offset: tuple[float, float]  # pixels
    velocity: tuple[float, float]  # pixels a frame


@dataclass(frozen=True)
class Camera:
    """A slow sway of everything, in parts of the frame, and the sensor's noise in levels."""

    sway: tuple[float, float]
    period: tuple[float, float]  # frames
    phase: tuple[float, float]
    noise: float


@dataclass(frozen=True)
class Evidence:
    """Frames at which an actor shows what was asked; `actor` counts in `Scene.actors`."""

    actor: int
    start: int
    stop: int


@dataclass(frozen=True)
class Plot:
    """One story of a scene and what can be asked about it.

    `slots` fill the question's gaps, `candidates` are the answers it could have, `combination` is what no other split
    asks about. `subjects` are the actors that the question is about, as they come in it.
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
    """A video before it is drawn: `frames` at `fps`, who is in it, what is behind them, and the stories told."""

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
        """Seconds at which the frames are shown."""
        return tuple(frame / self.fps for frame in range(self.frames))

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.frames / self.fps
