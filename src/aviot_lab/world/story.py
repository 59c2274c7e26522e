"""Plots before they are part of a scene, and the functions that make their actors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aviot.scenes.draws import Draws
from aviot.scenes.scene import TEXTURES, Actor, Evidence, Jumps, Plot, Point, Span, Steps, Trajectory
from aviot_lab.world.layout import Layout
from aviot_lab.world.words import completing

T = TypeVar("T")

SMALL, MEDIUM, LARGE = 0.074, 0.09, 0.112
"""Radii; diameters are 16, 19 and 24 of 108 pixels, so four to six patches of a 27 by 27 grid."""

TILT = 0.12  # largest rotation in radians; more would make a square look like a diamond
LEAST = 12  # frames of a window, in which four changes fit two frames apart
WINDOW = (0.2, 0.4, LEAST)  # smallest and largest share of the video that an event takes, and its least frames


@dataclass(frozen=True)
class Story:
    """Actors and the question about them; evidence and subjects are indices in `actors`."""

    actors: tuple[Actor, ...]
    answer: str
    candidates: tuple[str, ...]
    slots: Mapping[str, str]
    parts: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    subjects: tuple[int, ...] = (0,)

    def plot(self, family: str, first: int) -> Plot:
        """Return the plot of a scene whose actors have the story's from index `first` on."""
        return Plot(
            family=family,
            answer=self.answer,
            candidates=self.candidates,
            slots=tuple(self.slots.items()),
            combination=(family, *self.parts),
            evidence=tuple(Evidence(e.actor + first, e.start, e.stop) for e in self.evidence),
            subjects=tuple(subject + first for subject in self.subjects),
        )


def bulge(start: Point, end: Point, share: float, height: float) -> Point:
    """Return a point on an arc from start to end, `height` off the straight line at its middle."""
    across = height * math.sin(math.pi * share) / max(math.dist(start, end), 1e-9)
    dx, dy = end[0] - start[0], end[1] - start[1]
    return start[0] + share * dx - across * dy, start[1] + share * dy + across * dx


def steps(moments: Sequence[int], values: Sequence[T]) -> Steps[T]:
    """Return piecewise constant values: the first from frame 0, each further one from its moment on."""
    return tuple(zip((0, *moments), values, strict=True))


def texture_for(layout: Layout, parts: Sequence[str]) -> str:
    """Return a texture that completes these words to a combination of the split."""
    return layout.draws.pick(completing(layout.split, parts, TEXTURES))


def actor(
    layout: Layout, shape: str, colour: str, texture: str, path: Trajectory, visible: Span, size: float | None = None
) -> Actor:
    """Return an object of constant look, small or large unless a size is given."""
    return Actor(
        shape=shape,
        colour=((0, colour),),
        texture=texture,
        size=((0, layout.draws.pick((SMALL, LARGE)) if size is None else size),),
        path=path,
        visible=(visible,),
        tilt=tilt(layout.draws),
    )


def changing_actor(
    layout: Layout,
    shape: str,
    window: Span,
    changes: Mapping[str, Sequence[int]],
    texture: str | None = None,
) -> Actor:
    """Return an object that changes some of colour, size and place at given moments.

    Changing properties are random walks (`Draws.walk`): in any single frame they are uniform, so that the frame does
    not show how often, when and in which order they change.
    """
    draws = layout.draws
    spots = [layout.spot(cell) for cell in layout.cells(2)]

    def walked(change: str, values: Sequence[T]) -> Steps[T]:
        moments = changes.get(change, ())
        return steps(moments, draws.walk(values, len(moments)))

    return Actor(
        shape=shape,
        colour=walked("colour", layout.colours),
        texture=draws.pick(TEXTURES) if texture is None else texture,
        size=walked("size", (SMALL, LARGE)),
        path=Jumps(walked("place", spots)),
        visible=(window,),
        tilt=tilt(draws),
    )


def tilt(draws: Draws) -> float:
    """Return a slight rotation."""
    return draws.uniform(-TILT, TILT)


def around(moment: int, window: Span, actor: int = 0) -> Evidence:
    """Return the frames around a moment, which together show a change."""
    return Evidence(actor, max(moment - 2, window[0]), min(moment + 2, window[1]))
