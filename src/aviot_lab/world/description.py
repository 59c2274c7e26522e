"""What objects look like and do, in words: for learning from more than a question at a time.

Only what is the split's own is told: an object whose shape, colour and texture are a combination of it. That its colour
changed is told without the new one, which may be another split's.
"""

from bisect import bisect
from collections.abc import Sequence

from aviot_lab.world.paths import Jumps, Lane, Orbit
from aviot_lab.world.scene import Actor, Scene
from aviot_lab.world.split import belongs, number_of
from aviot_lab.world.stage import quadrant_of
from aviot_lab.world.story import LARGE, MEDIUM, SMALL
from aviot_lab.world.tracks import Tracks, own_looks, tracks
from aviot_lab.world.words import COLOUR_NAMES, DIRECTIONS, QUARTERS, SHAPES, TEXTURES, TURNS

SIZES = {SMALL: "small", MEDIUM: "medium", LARGE: "large"}
HUGE = "huge"
SIZE_WORDS = (*SIZES.values(), HUGE)
SIZE_LIMITS = tuple(radius + 0.005 for radius in SIZES)  # each size's largest radius; what is larger is huge


def descriptions(scene: Scene) -> list[tuple[str, str]]:
    """What each object does, where its shape names it.

    "Describe the star." "small red, top left; second quarter: colour; last quarter: place top right"
    """
    shapes = [actor.shape for actor in scene.actors]
    return [
        (f"Describe the {actor.shape}.", _described(actor, scene.frames))
        for actor in scene.actors
        if shapes.count(actor.shape) == 1 and not actor.front and _of_split(scene, actor)
    ]


def sights(scene: Scene, frames: Sequence[int]) -> list[tuple[str, str]]:
    """What a few frames show: every object that is in all of them, frame by frame, where its shape names it.

    "Describe the star." "large red striped, top left; large blue striped, top left". In a single frame colours name
    objects too: "Name the red object." "star"
    """
    truth = tracks(scene, frames)
    own = own_looks(scene, truth)
    looks = [_looks(truth, i) for i in range(len(scene.actors))]
    told = []
    for i, mine in enumerate(looks):
        if not all(truth.visible[i] & own[i]):
            continue
        others = [look for j, look in enumerate(looks) if j != i and any(truth.visible[j])]
        if all(mine[0][0] != shape for other in others for shape, _, _ in other):
            states = [
                f"{_size(truth, i, t)} {colour} {texture}, {_place(truth, i, t)}"
                for t, (_, colour, texture) in enumerate(mine)
            ]
            told.append((f"Describe the {mine[0][0]}.", "; ".join(states)))
        if len(frames) == 1 and all(mine[0][1] != other[0][1] for other in others):
            told.append((f"Name the {mine[0][1]} object.", mine[0][0]))
    return told


def _looks(truth: Tracks, actor: int) -> list[tuple[str, str, str]]:
    """Shape, colour and texture of an actor in each frame."""
    words = zip(truth.shape[actor], truth.colour[actor], truth.texture[actor], strict=True)
    return [(SHAPES[shape], COLOUR_NAMES[colour], TEXTURES[texture]) for shape, colour, texture in words]


def _size(truth: Tracks, actor: int, frame: int) -> str:
    return size_word(float(truth.size[actor, frame]))


def _place(truth: Tracks, actor: int, frame: int) -> str:
    return quadrant_of((truth.x[actor, frame], truth.y[actor, frame]))


def size_word(radius: float) -> str:
    """A size by its name; what flashes up is larger than any other."""
    return SIZE_WORDS[bisect(SIZE_LIMITS, radius)]


def _of_split(scene: Scene, actor: Actor) -> bool:
    return belongs(scene.split, number_of((actor.shape, actor.colour[0][1], actor.texture)))


def _described(actor: Actor, frames: int) -> str:
    return "; ".join([f"{size_word(actor.size[0][1])} {actor.colour[0][1]}, {_where(actor)}", *_events(actor, frames)])


def _where(actor: Actor) -> str:
    """Where it stands, or how it moves."""
    return quadrant_of(actor.path.stops[0][1]) if isinstance(actor.path, Jumps) else way_word(actor)


def way_word(actor: Actor) -> str:
    """How it moves; nothing if it stands."""
    path = actor.path
    if isinstance(path, Jumps):
        return ""
    if isinstance(path, Lane):
        left, right, up, down = DIRECTIONS
        backward, forward = (left, right) if path.axis == "x" else (up, down)
        return f"moving {forward if path.speed > 0 else backward}"
    if isinstance(path, Orbit):
        return f"going round {TURNS[0] if path.speed > 0 else TURNS[1]}"
    return "moving to and fro"


def _events(actor: Actor, frames: int) -> list[str]:
    """Its changes in order, each with the quarter of the video."""
    changes: list[tuple[int, str]] = [(at, "colour") for at, _ in actor.colour[1:]]
    changes += [(at, f"size {size_word(value)}") for at, value in actor.size[1:]]
    if isinstance(actor.path, Jumps):
        changes += [(at, f"place {quadrant_of(place)}") for at, place in actor.path.stops[1:]]
    return [f"{QUARTERS[4 * at // frames]}: {what}" for at, what in sorted(changes)]
