"""What is around the stories: backgrounds and cuts, the camera, and objects that nobody asks about."""

from aviot_lab.world.chance import Draws
from aviot_lab.world.paths import Bounce, Glide, Jumps, Orbit, Path, Point
from aviot_lab.world.patterns import PATTERNS
from aviot_lab.world.scene import Actor, Camera, Colour, Shot
from aviot_lab.world.stage import NoRoom, Stage
from aviot_lab.world.story import MEDIUM, SMALL, steps, tilt
from aviot_lab.world.words import TEXTURES

SWAY = 0.012  # the camera's, in parts of the frame; with it, what is in a corner is still in that corner
ROOM = 0.04  # how far a distractor moves from its cell's middle
CUTS = 3  # at most
MIN_SHOT = 6  # frames between cuts


def draw_camera(draws: Draws, frames: int, noise: float) -> Camera:
    """A slow sway and some noise."""
    return Camera(
        sway=(draws.uniform(0, SWAY), draws.uniform(0, SWAY)),
        period=(draws.uniform(0.3, 1.5) * frames, draws.uniform(0.3, 1.5) * frames),
        phase=(draws.angle(), draws.angle()),
        noise=draws.uniform(0, noise),
    )


def draw_shots(draws: Draws, frames: int) -> tuple[Shot, ...]:
    """Backgrounds, each from its cut on."""
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
    """A greyish colour of about this brightness."""
    grey = draws.uniform(low, high)
    red, green, blue = (grey + draws.uniform(-16, 16) for _ in range(3))
    return red, green, blue


def draw_distractor(stage: Stage) -> Actor:
    """An object with a shape and a place of its own that comes and goes, moves about, and may change its colour."""
    draws = stage.draws
    if not stage.free_shapes():
        raise NoRoom
    window = stage.window(0.2, 0.9, 4)
    moments = (draws.between(window[0] + 1, window[1] - 1),) if draws.below(3) == 0 else ()
    return Actor(
        shape=stage.shape(),
        colour=steps(moments, draws.walk(stage.colours, len(moments))),
        texture=draws.pick(TEXTURES),
        size=((0, draws.pick((SMALL, MEDIUM))),),
        path=_wander(draws, stage.spot(stage.cells(1)[0]), stage.frames),
        visible=(window,),
        tilt=tilt(draws),
    )


def _wander(draws: Draws, centre: Point, frames: int) -> Path:
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
