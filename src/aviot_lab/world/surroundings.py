"""Everything of a scene but its plots: backgrounds and cuts, the camera, and distractors."""

from aviot.scenes.draws import Draws
from aviot.scenes.scene import TEXTURES, Actor, Bounce, Camera, Colour, Glide, Jumps, Orbit, Point, Shot, Trajectory
from aviot.scenes.textures import PATTERNS
from aviot_lab.world.layout import Layout, NoRoom
from aviot_lab.world.story import MEDIUM, SMALL, steps, tilt

SWAY = 0.012  # largest amplitude of the camera: objects stay in their quarter of the frame
ROOM = 0.04  # largest distance of a distractor from the middle of its cell
CUTS = 3  # at most
MIN_SHOT = 6  # least frames between cuts


def draw_camera(draws: Draws, frames: int, noise: float) -> Camera:
    """Return a camera with a slow sway and some noise."""
    return Camera(
        sway=(draws.uniform(0, SWAY), draws.uniform(0, SWAY)),
        period=(draws.uniform(0.3, 1.5) * frames, draws.uniform(0.3, 1.5) * frames),
        phase=(draws.angle(), draws.angle()),
        noise=draws.uniform(0, noise),
    )


def draw_shots(draws: Draws, frames: int) -> tuple[Shot, ...]:
    """Return backgrounds, each from its cut on."""
    cuts = draws.below(min(CUTS, frames // MIN_SHOT - 1) + 1)
    slack = frames - (cuts + 1) * MIN_SHOT
    offsets = sorted(draws.below(slack + 1) for _ in range(cuts))
    starts = [0, *(offset + (i + 1) * MIN_SHOT for i, offset in enumerate(offsets))]
    return tuple(
        Shot(
            start=start,
            pattern=draws.below(len(PATTERNS)),
            colours=(_muted(draws, 62, 92), _muted(draws, 100, 136)),
            offset=(draws.uniform(0, 256), draws.uniform(0, 256)),
            velocity=(draws.uniform(-1.5, 1.5), draws.uniform(-1.5, 1.5)),
        )
        for start in starts
    )


def _muted(draws: Draws, low: float, high: float) -> Colour:
    """Return a greyish colour of about this brightness."""
    grey = draws.uniform(low, high)
    red, green, blue = (grey + draws.uniform(-16, 16) for _ in range(3))
    return red, green, blue


def draw_distractor(layout: Layout) -> Actor:
    """Return an object that appears for a while, moves in its cell, and may change its colour."""
    draws = layout.draws
    if not layout.free_shapes():
        raise NoRoom
    window = layout.window(0.2, 0.9, 4)
    moments = (draws.between(window[0] + 1, window[1] - 1),) if draws.below(3) == 0 else ()
    return Actor(
        shape=layout.shape(),
        colour=steps(moments, draws.walk(layout.colours, len(moments))),
        texture=draws.pick(TEXTURES),
        size=((0, draws.pick((SMALL, MEDIUM))),),
        path=_wander(draws, layout.spot(layout.cells(1)[0]), layout.frames),
        visible=(window,),
        tilt=tilt(draws),
    )


def _wander(draws: Draws, centre: Point, frames: int) -> Trajectory:
    def near() -> Point:
        return centre[0] + draws.uniform(-ROOM, ROOM), centre[1] + draws.uniform(-ROOM, ROOM)

    kind = draws.below(4)
    if kind == 0:
        return Jumps(((0, centre),))
    if kind == 1:
        return Bounce((near(), near()), draws.uniform(8, 30), draws.uniform(0, 1))
    if kind == 2:
        return Orbit(centre, draws.uniform(0.5, 1) * ROOM, draws.angle(), draws.uniform(-0.5, 0.5))
    times = sorted(draws.below(frames) + draws.uniform(0, 0.5) for _ in range(4))
    first, second = near(), near()
    return Glide(tuple(zip(times, (first, second, second, near()), strict=True)))  # it waits at the second
