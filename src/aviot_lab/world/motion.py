"""Plots about motion: direction, sense of rotation, following, and swapping places."""

import math

from aviot.scenes.scene import SHAPES, TEXTURES, Actor, Axis, Evidence, Glide, Lane, Orbit, Span, Trajectory
from aviot_lab.world.layout import Layout, place
from aviot_lab.world.story import MEDIUM, WINDOW, Story, actor, bulge, texture_for
from aviot_lab.world.words import DIRECTIONS, TURNS, YES_NO, completing

MARGIN = 0.1  # of a lane from the edges: slightly more than an object
LAPS = (0.8, 1.3)  # of a lane or circle while the object is visible: slow enough for a few frames to show it
LAG = (0.28, 0.36)  # of the follower, as a share of the lane; from a half on it would be ahead
SWAP_ASIDE = 0.04  # distance from the line when objects swap places


def direction(layout: Layout) -> Story:
    """Make a plot for "Which way did the star move?"."""
    answer = layout.draws.pick(DIRECTIONS)
    shape, colour = layout.shape(), layout.draws.pick(layout.colours)
    texture = texture_for(layout, (shape, colour))
    window = layout.window(*WINDOW)
    axis: Axis = "x" if answer in ("left", "right") else "y"
    sign = 1 if answer in ("right", "down") else -1
    centre, side = layout.block((3, 2))  # a square, so that objects around it do not show the axis
    reach = side / 2 - MARGIN
    along, across = centre if axis == "x" else centre[::-1]
    across += layout.draws.uniform(-reach, reach)
    speed = sign * layout.draws.uniform(*LAPS) / (window[1] - window[0])
    path = Lane(axis, across, (along - reach, along + reach), layout.draws.uniform(0, 1), speed)
    return Story(
        actors=(actor(layout, shape, colour, texture, path, window, MEDIUM),),
        answer=answer,
        candidates=DIRECTIONS,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def turning(layout: Layout) -> Story:
    """Make a plot for "Did the star go round clockwise or anticlockwise?"."""
    answer = layout.draws.pick(TURNS)
    shape, colour = layout.shape(), layout.draws.pick(layout.colours)
    texture = texture_for(layout, (shape, colour))
    window = layout.window(*WINDOW)
    centre, _ = layout.block((2,))
    sign = 1 if answer == "clockwise" else -1
    speed = sign * 2 * math.pi * layout.draws.uniform(*LAPS) / (window[1] - window[0])
    path = Orbit(centre, layout.draws.uniform(0.12, 0.15), layout.draws.angle(), speed)
    return Story(
        actors=(actor(layout, shape, colour, texture, path, window, MEDIUM),),
        answer=answer,
        candidates=TURNS,
        slots={"shape": shape},
        parts=(shape, colour, texture),
        evidence=(Evidence(0, *window),),
    )


def following(layout: Layout) -> Story:
    """Make a plot for "Which of two followed the other along their lane?"."""
    shapes = _pair(layout)
    window = layout.window(*WINDOW)
    axis, across = layout.lane(MARGIN, MEDIUM)
    sign = layout.draws.pick((-1, 1))
    speed = sign * layout.draws.uniform(*LAPS) / (window[1] - window[0])
    phase = layout.draws.uniform(0, 1)
    behind = layout.draws.below(2)
    phases = [phase, phase]
    phases[behind] -= sign * layout.draws.uniform(*LAG)
    actors = tuple(
        _any_look(layout, shape, Lane(axis, across, (MARGIN, 1 - MARGIN), start, speed), window)
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


def swap(layout: Layout) -> Story:
    """Make a plot for "Did the star and the ring swap places?"

    If not, both turn back half way.
    """
    answer = layout.draws.pick(YES_NO)
    shapes = _pair(layout)
    ends = [place(cell) for cell in layout.line(3)]
    window = layout.window(*WINDOW)
    leave, arrive = layout.moments(window, 2, (window[1] - window[0]) // 4)
    shares = (0, 0.25, 0.5, 0.75, 1) if answer == "yes" else (0, 0.25, 0.5, 0.25, 0)
    aside = layout.draws.pick((-SWAP_ASIDE, SWAP_ASIDE))
    actors = []
    for shape, (start, end) in zip(shapes, ((ends[0], ends[2]), (ends[2], ends[0])), strict=True):
        stops = tuple(
            (leave + i * (arrive - leave) / 4, bulge(start, end, share, aside)) for i, share in enumerate(shares)
        )
        actors.append(_any_look(layout, shape, Glide(stops), window))
    return Story(
        actors=tuple(actors),
        answer=answer,
        candidates=YES_NO,
        slots={"first": shapes[0], "second": shapes[1]},
        parts=shapes,
        evidence=tuple(Evidence(i, max(leave - 1, window[0]), min(arrive + 2, window[1])) for i in (0, 1)),
        subjects=(0, 1),
    )


def _any_look(layout: Layout, shape: str, path: Trajectory, window: Span) -> Actor:
    return actor(layout, shape, layout.draws.pick(layout.colours), layout.draws.pick(TEXTURES), path, window, MEDIUM)


def _pair(layout: Layout) -> tuple[str, str]:
    """Take two shapes that are a combination of the split, in either order."""
    first = layout.shape()
    return first, layout.shape(completing(layout.split, (first,), SHAPES))
