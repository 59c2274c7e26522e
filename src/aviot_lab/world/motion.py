"""Plots of how things move: which way, round which way, who follows whom, who takes whose place."""

import math

from aviot_lab.world.paths import Axis, Glide, Lane, Orbit, Path, bulge
from aviot_lab.world.scene import Actor, Evidence, Span
from aviot_lab.world.split import completing
from aviot_lab.world.stage import Stage, place
from aviot_lab.world.story import MEDIUM, WINDOW, Story, actor, texture_for
from aviot_lab.world.words import DIRECTIONS, SHAPES, TEXTURES, TURNS, YES_NO

MARGIN = 0.1  # of a lane from the edge of where it may be: a whole object, and a little
LAPS = (0.8, 1.3)  # of a lane, or round, in the time that something is there: slow, so that a few frames still tell
LAG = (0.28, 0.36)  # of a lane, behind whom one follows; less than half, or it would be before
SWAP_ASIDE = 0.04  # how far off the line each goes that swaps places


def direction(stage: Stage) -> Story:
    """Which way did the star move?"""
    answer = stage.draws.pick(DIRECTIONS)
    shape, colour = stage.shape(), stage.draws.pick(stage.colours)
    texture = texture_for(stage, (shape, colour))
    window = stage.window(*WINDOW)
    axis: Axis = "x" if answer in ("left", "right") else "y"
    sign = 1 if answer in ("right", "down") else -1
    centre, side = stage.block((3, 2))  # a square, so that what stands around it says nothing of the axis
    reach = side / 2 - MARGIN
    along, across = centre if axis == "x" else centre[::-1]
    across += stage.draws.uniform(-reach, reach)
    speed = sign * stage.draws.uniform(*LAPS) / (window[1] - window[0])
    path = Lane(axis, across, (along - reach, along + reach), stage.draws.uniform(0, 1), speed)
    return Story(
        actors=(actor(stage, shape, colour, texture, path, window, MEDIUM),),
        answer=answer,
        candidates=DIRECTIONS,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def turning(stage: Stage) -> Story:
    """Did the star go round clockwise or anticlockwise?"""
    answer = stage.draws.pick(TURNS)
    shape, colour = stage.shape(), stage.draws.pick(stage.colours)
    texture = texture_for(stage, (shape, colour))
    window = stage.window(*WINDOW)
    centre, _ = stage.block((2,))
    sign = 1 if answer == "clockwise" else -1
    speed = sign * 2 * math.pi * stage.draws.uniform(*LAPS) / (window[1] - window[0])
    path = Orbit(centre, stage.draws.uniform(0.12, 0.15), stage.draws.angle(), speed)
    return Story(
        actors=(actor(stage, shape, colour, texture, path, window, MEDIUM),),
        answer=answer,
        candidates=TURNS,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def following(stage: Stage) -> Story:
    """Which of two followed the other along their lane?"""
    shapes = _pair(stage)
    window = stage.window(*WINDOW)
    axis, across = stage.lane(MARGIN, MEDIUM)
    sign = stage.draws.pick((-1, 1))
    speed = sign * stage.draws.uniform(*LAPS) / (window[1] - window[0])
    phase = stage.draws.uniform(0, 1)
    behind = stage.draws.below(2)
    phases = [phase, phase]
    phases[behind] -= sign * stage.draws.uniform(*LAG)
    actors = tuple(
        _any_look(stage, shape, Lane(axis, across, (MARGIN, 1 - MARGIN), start, speed), window)
        for shape, start in zip(shapes, phases, strict=True)
    )
    return Story(
        actors=actors,
        answer=shapes[behind],
        candidates=shapes,
        slots={"first": shapes[0], "second": shapes[1]},
        parts=shapes,
        evidence=tuple(Evidence(i, *window) for i in (0, 1)),
        subjects=(0, 1),
    )


def swap(stage: Stage) -> Story:
    """Did the star and the ring swap places? If not, each turns round half way."""
    answer = stage.draws.pick(YES_NO)
    shapes = _pair(stage)
    ends = [place(cell) for cell in stage.line(3)]
    window = stage.window(*WINDOW)
    leave, arrive = stage.moments(window, 2, (window[1] - window[0]) // 4)
    shares = (0, 0.25, 0.5, 0.75, 1) if answer == "yes" else (0, 0.25, 0.5, 0.25, 0)
    aside = stage.draws.pick((-SWAP_ASIDE, SWAP_ASIDE))
    actors = []
    for shape, (start, end) in zip(shapes, ((ends[0], ends[2]), (ends[2], ends[0])), strict=True):
        stops = tuple(
            (leave + i * (arrive - leave) / 4, bulge(start, end, share, aside)) for i, share in enumerate(shares)
        )
        actors.append(_any_look(stage, shape, Glide(stops), window))
    return Story(
        actors=tuple(actors),
        answer=answer,
        candidates=YES_NO,
        slots={"first": shapes[0], "second": shapes[1]},
        parts=shapes,
        evidence=tuple(Evidence(i, max(leave - 1, window[0]), min(arrive + 2, window[1])) for i in (0, 1)),
        subjects=(0, 1),
    )


def _any_look(stage: Stage, shape: str, path: Path, window: Span) -> Actor:
    return actor(stage, shape, stage.draws.pick(stage.colours), stage.draws.pick(TEXTURES), path, window, MEDIUM)


def _pair(stage: Stage) -> tuple[str, str]:
    """Two shapes that are a combination of the split, in either order."""
    first = stage.shape()
    return first, stage.shape(completing(stage.split, (first,), SHAPES))
