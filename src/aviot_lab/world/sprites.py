"""Shapes and textures as one table of small pictures: distance to the outline, and where the second tone goes."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aviot_lab.world.words import SHAPES, TEXTURES

Grid = NDArray[np.float64]

EXTENT = 1.2  # how far a picture reaches, in radii; no shape reaches further than 1.06
SIDE = 72  # entries along a side: finer than a pixel of anything but what flashes up
FINER = 4  # points along an entry's side that a texture is averaged over


@cache
def sprite_table() -> NDArray[np.float32]:
    """[shapes * textures * 72 * 72, 2]: distance to the outline in radii, negative inside; the second tone's share."""
    fine = np.stack(np.meshgrid(*[_ticks(SIDE * FINER)] * 2, indexing="xy"))  # x, y
    coarse = np.stack(np.meshgrid(*[_ticks(SIDE)] * 2, indexing="xy"))
    table = np.empty((len(SHAPES), len(TEXTURES), SIDE, SIDE, 2), np.float32)
    for i, shape in enumerate(SHAPES):
        table[i, ..., 0] = distance(shape, *coarse)
        inside = distance(shape, *coarse).repeat(FINER, 0).repeat(FINER, 1)
        for j, texture in enumerate(TEXTURES):
            tone = second_tone(texture, fine[0], fine[1], inside).astype(np.float64)
            table[i, j, ..., 1] = tone.reshape(SIDE, FINER, SIDE, FINER).mean((1, 3))
    return table.reshape(-1, 2)


def distance(shape: str, x: Grid, y: Grid) -> Grid:
    """Signed distance to the shape's outline, inside negative; y points down."""
    from_centre = np.hypot(x, y)
    if shape == "circle":
        return from_centre - 0.92
    if shape == "ring":
        return np.abs(from_centre - 0.68) - 0.3
    if shape == "moon":
        return np.maximum(from_centre - 1.0, 0.72 - np.hypot(x - 0.56, y))
    return _polygon(_CORNERS[shape], x, y)


def second_tone(texture: str, x: Grid, y: Grid, inside: Grid) -> NDArray[np.bool_]:
    """Where a texture has its second tone; `inside` is the distance to the outline."""
    if texture == "striped":
        return np.mod(x + 0.15, 0.7) > 0.38
    if texture == "dotted":
        return np.hypot(np.mod(x + 0.31, 0.62) - 0.31, np.mod(y + 0.31, 0.62) - 0.31) < 0.2
    if texture == "checkered":
        return (np.floor(x / 0.48) + np.floor(y / 0.48)) % 2 > 0
    if texture == "framed":
        return inside > -0.2
    return np.zeros(x.shape, bool)


def _ticks(count: int) -> Grid:
    return ((np.arange(count) + 0.5) / count * 2 - 1) * EXTENT


def _polygon(corners: Grid, x: Grid, y: Grid) -> Grid:
    """Distance to a closed polygon's edges, negative where a ray crosses an odd number of them."""
    best = np.full(x.shape, np.inf)
    odd = np.zeros(x.shape, bool)
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        share = np.clip(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / ((bx - ax) ** 2 + (by - ay) ** 2), 0, 1)
        best = np.minimum(best, np.hypot(x - ax - share * (bx - ax), y - ay - share * (by - ay)))
        if ay != by:
            odd ^= ((ay > y) != (by > y)) & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return np.where(odd, -best, best)


def _star() -> Grid:
    angles = np.arange(10) * np.pi / 5 - np.pi / 2
    radii = np.where(np.arange(10) % 2, 0.44, 1.06)
    return np.stack([radii * np.cos(angles), radii * np.sin(angles) + 0.06], axis=1)


def _heart() -> Grid:
    t = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([x / 16.5, (-y - 2.5) / 16.5], axis=1)


def _cross() -> Grid:
    arm, end = 0.3, 1.0
    quarter = np.array([(arm, -end), (arm, -arm), (end, -arm)])
    turns = [quarter]
    for _ in range(3):
        turns.append(np.stack([-turns[-1][:, 1], turns[-1][:, 0]], axis=1))
    return np.concatenate(turns)


_CORNERS: dict[str, Grid] = {
    "square": np.array([(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)]),
    "triangle": np.array([(0.0, -1.0), (1.0, 0.8), (-1.0, 0.8)]),
    "diamond": np.array([(0.0, -1.05), (0.78, 0.0), (0.0, 1.05), (-0.78, 0.0)]),
    "star": _star(),
    "cross": _cross(),
    "heart": _heart(),
    "hourglass": np.array([(-0.85, -0.95), (0.85, -0.95), (0.16, 0.0), (0.85, 0.95), (-0.85, 0.95), (-0.16, 0.0)]),
}
