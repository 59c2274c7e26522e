"""Objects drawn over each other: one layer holds at most one object a frame, and all its frames are drawn at once."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aviot.synthetic.scene import Scene
from aviot.synthetic.sprites import EXTENT, SIDE, sprite_table
from aviot.synthetic.tracks import Tracks
from aviot.synthetic.words import COLOURS, TEXTURES

OUTLINE = 1.2  # pixels of contour round every object, so that it stands out from any background

_FILLS = np.array(list(COLOURS.values()), np.float32)
_DARK = _FILLS.mean(1) < 40  # black: its contour and its second tone are lighter than itself
_TONES = np.where(_DARK[:, None], np.float32(120), _FILLS * np.float32(0.38))
_CONTOURS = np.where(_DARK, np.float32(190), np.float32(14))


class Layer(NamedTuple):
    """One object a frame, for the n frames that have one, and the window of pixels that holds each."""

    frame: np.ndarray  # which of the canvas
    corner: np.ndarray  # [n,2] of the window that holds the object, whole pixels, x and y
    side: np.ndarray  # [w]: 0 … w-1, the window's ticks
    centre: np.ndarray  # [n,2] of the object, in pixels
    turn: np.ndarray  # [n,2]: cosine and sine of its tilt, over its radius
    radius: np.ndarray  # [n] in pixels
    sprite: np.ndarray  # [n]: first entry of its picture in the table
    colours: np.ndarray  # [n,7]: fill, second tone, contour's grey


def layers_of(cast: Sequence[Tracks], scenes: Sequence[Scene]) -> list[Layer]:
    """Layers of a batch from back to front; what is before everything is in the last ones."""
    size = scenes[0].size
    order = []
    for number, scene in enumerate(scenes):
        for front in (False, True):
            actors = [i for i, actor in enumerate(scene.actors) if actor.front is front]
            order += [((front, depth), number, i) for depth, i in enumerate(actors)]
    layers = []
    for depth in sorted({key for key, _, _ in order}):
        parts = [_entries(cast[number], i, number, size) for key, number, i in order if key == depth]
        entries = np.concatenate(parts)
        if len(entries):
            layers.append(_layer(entries, size))
    return layers


def _entries(track: Tracks, actor: int, number: int, size: int) -> np.ndarray:
    """Frame, x, y, radius, tilt, sprite and colour of an actor where it is seen [n,7]; lengths in pixels."""
    radius = track.size[actor] * size
    x, y = track.x[actor] * size, track.y[actor] * size
    reach = radius * EXTENT
    seen = track.visible[actor] & (x > -reach) & (x < size + reach) & (y > -reach) & (y < size + reach)
    t = np.flatnonzero(seen)
    sprite = (track.shape[actor] * len(TEXTURES) + track.texture[actor]) * SIDE**2
    frame = number * len(seen) + t
    return np.stack([frame, x[t], y[t], radius[t], track.tilt[actor][t], sprite[t], track.colour[actor][t]], axis=1)


def _layer(entries: np.ndarray, size: int) -> Layer:
    frame, x, y, radius, tilt, sprite, colour = entries.T
    centre = np.stack([x, y], axis=1)
    width = min(size, 2 * int(np.ceil(radius.max() * EXTENT)) + 2)
    corner = np.clip(np.rint(centre).astype(np.int64) - width // 2, 0, size - width)  # what it would cut off is unseen
    which = colour.astype(np.int64)
    colours = np.concatenate([_FILLS[which], _TONES[which], _CONTOURS[which, None]], axis=1)
    return Layer(
        frame=frame.astype(np.int64),
        corner=corner,
        side=np.arange(width),
        centre=centre.astype(np.float32),
        turn=(np.stack([np.cos(tilt), np.sin(tilt)], axis=1) / radius[:, None]).astype(np.float32),
        radius=radius.astype(np.float32),
        sprite=sprite.astype(np.int64),
        colours=colours,
    )


def draw_layer(
    canvas: Tensor,
    frame: Tensor,
    corner: Tensor,
    side: Tensor,
    centre: Tensor,
    turn: Tensor,
    radius: Tensor,
    sprite: Tensor,
    colours: Tensor,
) -> None:
    """Blend a layer's objects into float levels [N,H,W,3], in place: its parts, on the canvas's device."""
    columns = side + corner[:, :1]
    rows = side + corner[:, 1:]
    place = frame[:, None, None], rows[:, :, None], columns[:, None, :]
    dx = (columns + 0.5 - centre[:, :1])[:, None, :]
    dy = (rows + 0.5 - centre[:, 1:])[:, :, None]
    cosine, sine = turn[:, 0, None, None], turn[:, 1, None, None]
    outline, tone = _look_up(sprite, cosine * dx + sine * dy, cosine * dy - sine * dx)
    outline = outline * radius[:, None, None]  # pixels
    cover = (0.5 - outline).clamp_(0, 1)[..., None]
    inner = (0.5 - OUTLINE - outline).clamp_(0, 1)[..., None]
    fill, second, contour = (part[:, None, None] for part in colours.split((3, 3, 1), dim=1))
    ink = torch.lerp(fill, second, tone[..., None])
    canvas[place] = torch.lerp(canvas[place], torch.lerp(contour, ink, inner), cover)


@cache
def _table(device: torch.device) -> Tensor:
    return torch.from_numpy(sprite_table()).to(device)


def _look_up(sprite: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Distance in radii and second tone of pictures at places in radii [n,w,w], between entries in proportion."""
    table = _table(sprite.device)
    column = ((u / EXTENT + 1) * (SIDE / 2) - 0.5).clamp_(0, SIDE - 1.001)
    row = ((v / EXTENT + 1) * (SIDE / 2) - 0.5).clamp_(0, SIDE - 1.001)
    left, top = column.long(), row.long()
    across, down = (column - left)[..., None], (row - top)[..., None]
    at = sprite[:, None, None] + top * SIDE + left
    upper = torch.lerp(table[at], table[at + 1], across)
    lower = torch.lerp(table[at + SIDE], table[at + SIDE + 1], across)
    found = torch.lerp(upper, lower, down)
    return found[..., 0], found[..., 1]
