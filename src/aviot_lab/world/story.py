"""What a plot is made of before it has its place in a scene, and the tools that all plots share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aviot_lab.world.chance import Draws
from aviot_lab.world.paths import Jumps, Path
from aviot_lab.world.scene import Actor, Evidence, Plot, Span, Steps
from aviot_lab.world.split import completing
from aviot_lab.world.stage import Stage
from aviot_lab.world.words import TEXTURES

T = TypeVar("T")

SMALL, MEDIUM, LARGE = 0.074, 0.09, 0.112
"""Radii: 16, 19 and 24 of 108 pixels across, so four to six patches of a 27 by 27 grid."""

TILT = 0.12  # radians at most; more would make a diamond of a square
LEAST = 12  # frames of a window in which four changes fit, two frames apart
WINDOW = (0.2, 0.4, LEAST)  # of the video, and frames at least, that it takes to show what is asked about


@dataclass(frozen=True)
class Story:
    """Actors and the question about them; evidence and subjects count in `actors`."""

    actors: tuple[Actor, ...]
    answer: str
    candidates: tuple[str, ...]
    slots: Mapping[str, str]
    parts: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    subjects: tuple[int, ...] = (0,)

    def plot(self, family: str, first: int) -> Plot:
        """As a plot of a scene in which its actors begin with number `first`."""
        return Plot(
            family=family,
            answer=self.answer,
            candidates=self.candidates,
            slots=tuple(self.slots.items()),
            combination=(family, *self.parts),
            evidence=tuple(Evidence(e.actor + first, e.start, e.stop) for e in self.evidence),
            subjects=tuple(subject + first for subject in self.subjects),
        )


def steps(moments: Sequence[int], values: Sequence[T]) -> Steps[T]:
    """The first value from the start, each further one from its moment on."""
    return tuple(zip((0, *moments), values, strict=True))


def texture_for(stage: Stage, parts: Sequence[str]) -> str:
    """A texture that makes a combination of the split out of these parts."""
    return stage.draws.pick(completing(stage.split, parts, TEXTURES))


def actor(
    stage: Stage, shape: str, colour: str, texture: str, path: Path, visible: Span, size: float | None = None
) -> Actor:
    """An object that looks the same throughout, small or large unless a size is given."""
    return Actor(
        shape=shape,
        colour=((0, colour),),
        texture=texture,
        size=((0, stage.draws.pick((SMALL, LARGE)) if size is None else size),),
        path=path,
        visible=(visible,),
        tilt=tilt(stage.draws),
    )


def changing_actor(
    stage: Stage,
    shape: str,
    window: Span,
    changes: Mapping[str, Sequence[int]],
    texture: str | None = None,
) -> Actor:
    """An object that changes some of colour, size and place at given moments.

    Whatever changes is a walk (`Draws.walk`), so that at any one frame it is uniform among all that it could be, and
    how often, when and in which order it changes cannot be seen from that frame.
    """
    draws = stage.draws
    spots = [stage.spot(cell) for cell in stage.cells(2)]

    def walked(change: str, values: Sequence[T]) -> Steps[T]:
        moments = changes.get(change, ())
        return steps(moments, draws.walk(values, len(moments)))

    return Actor(
        shape=shape,
        colour=walked("colour", stage.colours),
        texture=draws.pick(TEXTURES) if texture is None else texture,
        size=walked("size", (SMALL, LARGE)),
        path=Jumps(walked("place", spots)),
        visible=(window,),
        tilt=tilt(draws),
    )


def tilt(draws: Draws) -> float:
    """A slight turn."""
    return draws.uniform(-TILT, TILT)


def around(moment: int, window: Span, actor: int = 0) -> Evidence:
    """The frames just before and from a moment on, which show a change together."""
    return Evidence(actor, max(moment - 2, window[0]), min(moment + 2, window[1]))
