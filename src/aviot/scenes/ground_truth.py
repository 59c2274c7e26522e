"""Ground truth of a scene's frames: position and appearance of every actor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES, Scene, Span, Steps

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]

_SHAPE, _COLOUR, _TEXTURE = ({word: i for i, word in enumerate(words)} for words in (SHAPES, COLOUR_NAMES, TEXTURES))


@dataclass(frozen=True, eq=False)
class Tracks:
    """Actors in chosen frames, [O,T] each: positions with the camera's sway, radii, and words by their index."""

    visible: NDArray[np.bool_]
    x: Reals
    y: Reals
    size: Reals
    shape: Numbers
    colour: Numbers
    texture: Numbers
    tilt: Reals


def tracks(scene: Scene, frames: Sequence[int] | Numbers | None = None) -> Tracks:
    """Return the actors in these frames; all frames by default."""
    at = np.arange(scene.frames) if frames is None else np.asarray(frames, np.int64)
    places = np.stack([actor.path.at(at) for actor in scene.actors]) + sway(scene, at)
    colours = [_stepped([(t, _COLOUR[word]) for t, word in actor.colour], at) for actor in scene.actors]
    return Tracks(
        visible=np.array([_within(actor.visible, at) for actor in scene.actors]),
        x=places[..., 0],
        y=places[..., 1],
        size=np.array([_stepped(actor.size, at) for actor in scene.actors]),
        shape=np.array([np.full(len(at), _SHAPE[actor.shape]) for actor in scene.actors]),
        colour=np.array(colours),
        texture=np.array([np.full(len(at), _TEXTURE[actor.texture]) for actor in scene.actors]),
        tilt=np.array([np.full(len(at), actor.tilt) for actor in scene.actors]),
    )


def sway(scene: Scene, at: Numbers) -> Reals:
    """Return the camera's offset in these frames [T,2]."""
    camera = scene.camera
    angles = at[:, None] * (2 * np.pi / np.array(camera.period)) + np.array(camera.phase)
    return np.array(camera.sway) * np.sin(angles)


def _stepped(steps: Sequence[tuple[int, float]] | Steps[float], at: Numbers) -> NDArray:
    values = np.array([value for _, value in steps])
    if len(values) == 1:
        return np.full(len(at), values[0])
    return values[np.searchsorted([start for start, _ in steps], at, side="right") - 1]


def _within(spans: Sequence[Span], at: Numbers) -> NDArray[np.bool_]:
    inside = np.zeros(len(at), bool)
    for start, stop in spans:
        inside |= (at >= start) & (at < stop)
    return inside
