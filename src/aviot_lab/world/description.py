"""Descriptions of objects in words: a denser training signal than questions.

Only objects whose shape, colour and texture are a combination of the scene's split are described. A change of colour is
described without the new colour, which may make a combination of another split.
"""

from bisect import bisect
from collections.abc import Sequence

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES, Actor, Jumps, Lane, Orbit, Scene, Tracks, tracks
from aviot_lab.world.layout import quadrant_of
from aviot_lab.world.story import LARGE, MEDIUM, SMALL
from aviot_lab.world.words import DIRECTIONS, QUARTERS, TURNS, belongs, number_of, own_looks

SIZES = {SMALL: "small", MEDIUM: "medium", LARGE: "large"}
HUGE = "huge"
SIZE_WORDS = (*SIZES.values(), HUGE)
SIZE_LIMITS = tuple(radius + 0.005 for radius in SIZES)  # each size's largest radius; anything larger is huge


def descriptions(scene: Scene) -> list[tuple[str, str]]:
    """Return a prompt and a description of every object that its shape identifies.

    "Describe the star." "small red, top left; second quarter: colour; last quarter: place top right"
    """
    shapes = [actor.shape for actor in scene.actors]
    return [
        (f"Describe the {actor.shape}.", _described(actor, scene.frames))
        for actor in scene.actors
        if shapes.count(actor.shape) == 1 and not actor.front and _of_split(scene, actor)
    ]


def frame_descriptions(scene: Scene, frames: Sequence[int]) -> list[tuple[str, str]]:
    """Return prompts and descriptions, frame by frame, of every object that is in all these frames.

    Its shape has to identify it: "Describe the star." "large red striped, top left; large blue striped, top left". In a
    single frame colours identify objects too: "Name the red object." "star"
    """
    truth = tracks(scene, frames)
    own = own_looks(scene, truth)
    looks = [_looks(truth, i) for i in range(len(scene.actors))]
    described = []
    for i, mine in enumerate(looks):
        if not all(truth.visible[i] & own[i]):
            continue
        others = [look for j, look in enumerate(looks) if j != i and any(truth.visible[j])]
        if all(mine[0][0] != shape for other in others for shape, _, _ in other):
            states = [
                f"{_size(truth, i, t)} {colour} {texture}, {_place(truth, i, t)}"
                for t, (_, colour, texture) in enumerate(mine)
            ]
            described.append((f"Describe the {mine[0][0]}.", "; ".join(states)))
        if len(frames) == 1 and all(mine[0][1] != other[0][1] for other in others):
            described.append((f"Name the {mine[0][1]} object.", mine[0][0]))
    return described


def _looks(truth: Tracks, actor: int) -> list[tuple[str, str, str]]:
    """Return shape, colour and texture of an actor in each frame."""
    words = zip(truth.shape[actor], truth.colour[actor], truth.texture[actor], strict=True)
    return [(SHAPES[shape], COLOUR_NAMES[colour], TEXTURES[texture]) for shape, colour, texture in words]


def _size(truth: Tracks, actor: int, frame: int) -> str:
    return size_word(float(truth.size[actor, frame]))


def _place(truth: Tracks, actor: int, frame: int) -> str:
    return quadrant_of((truth.x[actor, frame], truth.y[actor, frame]))


def size_word(radius: float) -> str:
    """Return the word for a radius; objects that flash up are the largest."""
    return SIZE_WORDS[bisect(SIZE_LIMITS, radius)]


def _of_split(scene: Scene, actor: Actor) -> bool:
    return belongs(scene.split, number_of((actor.shape, actor.colour[0][1], actor.texture)))


def _described(actor: Actor, frames: int) -> str:
    return "; ".join([f"{size_word(actor.size[0][1])} {actor.colour[0][1]}, {_where(actor)}", *_events(actor, frames)])


def _where(actor: Actor) -> str:
    """Return where an actor stands, or how it moves."""
    return quadrant_of(actor.path.stops[0][1]) if isinstance(actor.path, Jumps) else way_word(actor)


def way_word(actor: Actor) -> str:
    """Return how an actor moves; an empty string if it stands."""
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
    """Return an actor's changes in order, each with the quarter of the video."""
    changes: list[tuple[int, str]] = [(at, "colour") for at, _ in actor.colour[1:]]
    changes += [(at, f"size {size_word(value)}") for at, value in actor.size[1:]]
    if isinstance(actor.path, Jumps):
        changes += [(at, f"place {quadrant_of(place)}") for at, place in actor.path.stops[1:]]
    return [f"{QUARTERS[4 * at // frames]}: {change}" for at, change in sorted(changes)]
