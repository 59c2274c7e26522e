"""Objects drawn over each other: a layer holds at most one object per frame, and all its frames are blended at once."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aviot.scenes.scene import COLOURS, TEXTURES, Scene, Tracks
from aviot.scenes.textures import EXTENT, SPRITE_SIDE, sprite_table
from aviot.utils.to_device import to_device

OUTLINE = 1.2  # width in pixels of the contour that sets an object off from any background

_FILLS = np.array(list(COLOURS.values()), np.float32)
_DARK = _FILLS.mean(1) < 40  # black: its contour and its second tone are lighter than itself
_TONES = np.where(_DARK[:, None], np.float32(120), _FILLS * np.float32(0.38))
_CONTOURS = np.where(_DARK, np.float32(190), np.float32(14))


class Stack(NamedTuple):
    """The objects of several layers from back to front, and the windows of pixels that hold them."""

    layers: tuple[int, ...]  # number of objects per layer
    width: int  # of the windows
    frame: np.ndarray  # [n]: index in the canvas
    corner: np.ndarray  # [n,2]: x and y of the object's window, whole pixels
    centre: np.ndarray  # [n,2]: centre of the object, in pixels
    turn: np.ndarray  # [n,2]: cosine and sine of its tilt, divided by its radius
    radius: np.ndarray  # [n] in pixels
    sprite: np.ndarray  # [n]: first entry of its sprite in the table
    colours: np.ndarray  # [n,7]: fill, second tone, contour's grey


def stacks_of(cast: Sequence[Tracks], scenes: Sequence[Scene]) -> list[Stack]:
    """Return the layers of a batch: one stack of ordinary objects, and one of those drawn over everything else."""
    stacks = []
    for front in (False, True):
        depths: dict[int, list[np.ndarray]] = defaultdict(list)
        for number, scene in enumerate(scenes):
            actors = [i for i, actor in enumerate(scene.actors) if actor.front is front]
            for depth, actor in enumerate(actors):
                depths[depth].append(_entries(cast[number], actor, number, scene.size))
        layers = [np.concatenate(depths[depth]) for depth in sorted(depths)]
        if any(len(layer) for layer in layers):
            stacks.append(_stack(layers, scenes[0].size))
    return stacks


def _entries(track: Tracks, actor: int, number: int, size: int) -> np.ndarray:
    """Return frame, x, y, radius, tilt, sprite and colour of an actor where it is visible [n,7]; lengths in pixels."""
    radius = track.size[actor] * size
    x, y = track.x[actor] * size, track.y[actor] * size
    reach = radius * EXTENT
    seen = track.visible[actor] & (x > -reach) & (x < size + reach) & (y > -reach) & (y < size + reach)
    t = np.flatnonzero(seen)
    sprite = (track.shape[actor] * len(TEXTURES) + track.texture[actor]) * SPRITE_SIDE**2
    frame = number * len(seen) + t
    return np.stack([frame, x[t], y[t], radius[t], track.tilt[actor][t], sprite[t], track.colour[actor][t]], axis=1)


def _stack(layers: Sequence[np.ndarray], size: int) -> Stack:
    frame, x, y, radius, tilt, sprite, colour = np.concatenate(layers).T
    centre = np.stack([x, y], axis=1)
    width = min(size, 2 * int(np.ceil(radius.max() * EXTENT)) + 2)
    corner = np.clip(np.rint(centre).astype(np.int64) - width // 2, 0, size - width)  # inside
    which = colour.astype(np.int64)
    colours = np.concatenate([_FILLS[which], _TONES[which], _CONTOURS[which, None]], axis=1)
    return Stack(
        layers=tuple(len(layer) for layer in layers),
        width=width,
        frame=frame.astype(np.int64),
        corner=corner,
        centre=centre.astype(np.float32),
        turn=(np.stack([np.cos(tilt), np.sin(tilt)], axis=1) / radius[:, None]).astype(np.float32),
        radius=radius.astype(np.float32),
        sprite=sprite.astype(np.int64),
        colours=colours,
    )


def draw_stack(canvas: Tensor, stack: Stack) -> None:
    """Blend a stack's objects into float levels [N,H,W,3], in place.

    Coverage is computed for all objects at once; blending depends on the layers behind and goes layer by layer.
    """
    device, size = canvas.device, canvas.shape[1]
    frame, corner, centre, turn, radius, sprite, colours = (to_device(part, device) for part in stack[2:])
    ticks = torch.arange(stack.width, device=device)
    columns = ticks + corner[:, :1]
    rows = ticks + corner[:, 1:]
    places = ((frame[:, None] * size + rows) * size)[:, :, None] + columns[:, None, :]
    dx = (columns + 0.5 - centre[:, :1])[:, None, :]
    dy = (rows + 0.5 - centre[:, 1:])[:, :, None]
    cosine, sine = turn[:, 0, None, None], turn[:, 1, None, None]
    outline, tone = _look_up(sprite, cosine * dx + sine * dy, cosine * dy - sine * dx)
    outline = outline * radius[:, None, None]  # pixels
    cover = (0.5 - outline).clamp_(0, 1)[..., None]
    inner = (0.5 - OUTLINE - outline).clamp_(0, 1)[..., None]
    fill, second, contour = (part[:, None, None] for part in colours.split((3, 3, 1), dim=1))
    paint = torch.lerp(contour, torch.lerp(fill, second, tone[..., None]), inner)
    pixels = canvas.view(-1, 3)
    for place, ink, share in zip(*(part.split(stack.layers) for part in (places, paint, cover)), strict=True):
        pixels[place] = torch.lerp(pixels[place], ink, share)


@cache
def _table(device: torch.device) -> Tensor:
    return torch.from_numpy(sprite_table()).to(device)


def _look_up(sprite: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return distance in radii and second tone of sprites at positions in radii [n,w,w], by bilinear interpolation."""
    table = _table(sprite.device)
    column = ((u / EXTENT + 1) * (SPRITE_SIDE / 2) - 0.5).clamp_(0, SPRITE_SIDE - 1.001)
    row = ((v / EXTENT + 1) * (SPRITE_SIDE / 2) - 0.5).clamp_(0, SPRITE_SIDE - 1.001)
    left, top = column.long(), row.long()
    across, down = (column - left)[..., None], (row - top)[..., None]
    at = sprite[:, None, None] + top * SPRITE_SIDE + left
    upper = torch.lerp(table[at], table[at + 1], across)
    lower = torch.lerp(table[at + SPRITE_SIDE], table[at + SPRITE_SIDE + 1], across)
    found = torch.lerp(upper, lower, down)
    return found[..., 0], found[..., 1]
