"""What objects look like and do, in words: for learning from more than a question at a time.

Only what is the split's own is told: an object whose shape, colour and texture are a combination of it.
"""

from aviot.synthetic.paths import Jumps, Lane, Orbit, Point
from aviot.synthetic.scene import Actor, Scene
from aviot.synthetic.split import belongs, number_of
from aviot.synthetic.story import LARGE, MEDIUM, SMALL
from aviot.synthetic.tracks import tracks
from aviot.synthetic.words import COLOUR_NAMES, DIRECTIONS, QUADRANTS, QUARTERS, SHAPES, TEXTURES, TURNS

SIZES = {SMALL: "small", MEDIUM: "medium", LARGE: "large"}


def descriptions(scene: Scene) -> list[tuple[str, str]]:
    """What each object does, where its shape names it.

    "Describe the star." "small red, top left; second quarter: colour blue; last quarter: place top right"
    """
    shapes = [actor.shape for actor in scene.actors]
    return [
        (f"Describe the {actor.shape}.", _described(actor, scene.frames))
        for actor in scene.actors
        if shapes.count(actor.shape) == 1 and not actor.front and _of_split(scene, actor)
    ]


def sights(scene: Scene, frame: int) -> list[tuple[str, str]]:
    """What one frame shows.

    "Describe the star." "large red striped, top left". "Name the red object." "star"
    """
    truth = tracks(scene, [frame])
    shown = [
        (SHAPES[truth.shape[i, 0]], COLOUR_NAMES[truth.colour[i, 0]], TEXTURES[truth.texture[i, 0]], i)
        for i in range(len(scene.actors))
        if truth.visible[i, 0]
    ]
    shapes, colours = [look[0] for look in shown], [look[1] for look in shown]
    told = []
    for shape, colour, texture, i in shown:
        if not belongs(scene.split, number_of((shape, colour, texture))):
            continue
        if shapes.count(shape) == 1:
            size = SIZES.get(float(truth.size[i, 0]), "huge")
            place = _quadrant((truth.x[i, 0], truth.y[i, 0]))
            told.append((f"Describe the {shape}.", f"{size} {colour} {texture}, {place}"))
        if colours.count(colour) == 1:
            told.append((f"Name the {colour} object.", shape))
    return told


def _of_split(scene: Scene, actor: Actor) -> bool:
    return belongs(scene.split, number_of((actor.shape, actor.colour[0][1], actor.texture[0][1])))


def _described(actor: Actor, frames: int) -> str:
    return "; ".join([f"{SIZES[actor.size[0][1]]} {actor.colour[0][1]}, {_way(actor)}", *_events(actor, frames)])


def _way(actor: Actor) -> str:
    """Where it stands, or how it moves."""
    path = actor.path
    if isinstance(path, Jumps):
        return _quadrant(path.stops[0][1])
    if isinstance(path, Lane):
        left, right, up, down = DIRECTIONS
        backward, forward = (left, right) if path.axis == "x" else (up, down)
        return f"moving {forward if path.speed > 0 else backward}"
    if isinstance(path, Orbit):
        return f"going round {TURNS[0] if path.speed > 0 else TURNS[1]}"
    return "moving to and fro"


def _events(actor: Actor, frames: int) -> list[str]:
    """Its changes in order, each with the quarter of the video."""
    changes: list[tuple[int, str]] = [(at, f"colour {value}") for at, value in actor.colour[1:]]
    changes += [(at, f"size {SIZES[value]}") for at, value in actor.size[1:]]
    changes += [(at, f"pattern {value}") for at, value in actor.texture[1:]]
    if isinstance(actor.path, Jumps):
        changes += [(at, f"place {_quadrant(place)}") for at, place in actor.path.stops[1:]]
    return [f"{QUARTERS[4 * at // frames]}: {what}" for at, what in sorted(changes)]


def _quadrant(place: Point) -> str:
    return QUADRANTS[2 * (place[1] > 0.5) + (place[0] > 0.5)]
