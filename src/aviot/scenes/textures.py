"""Lookup tables of the renderer: sprites of shapes and textures, background patterns, sensor noise."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aviot.scenes.scene import SHAPES, TEXTURES
from aviot.utils.splitmix64 import STRIDE, splitmix64

Grid = NDArray[np.float64]

EXTENT = 1.2  # half of a sprite's width in radii; no shape reaches further than 1.06
SPRITE_SIDE = 72  # entries along a side: finer than a pixel of all but the largest objects
FINER = 4  # points along an entry's side that a texture is averaged over
PATTERN_SIDE = 256  # a power of two, so that positions wrap by a mask
PATTERNS = ("clouds", "waves", "tiles", "grain")


@cache
def sprite_table() -> NDArray[np.float32]:
    """Return all sprites [shapes * textures * 72 * 72, 2]: distance to the outline, share of the second tone."""
    fine = np.stack(np.meshgrid(*[_ticks(SPRITE_SIDE * FINER)] * 2, indexing="xy"))  # x, y
    coarse = np.stack(np.meshgrid(*[_ticks(SPRITE_SIDE)] * 2, indexing="xy"))
    table = np.empty((len(SHAPES), len(TEXTURES), SPRITE_SIDE, SPRITE_SIDE, 2), np.float32)
    for i, shape in enumerate(SHAPES):
        table[i, ..., 0] = distance(shape, *coarse)
        inside = distance(shape, *coarse).repeat(FINER, 0).repeat(FINER, 1)
        for j, texture in enumerate(TEXTURES):
            tone = second_tone(texture, fine[0], fine[1], inside).astype(np.float64)
            table[i, j, ..., 1] = tone.reshape(SPRITE_SIDE, FINER, SPRITE_SIDE, FINER).mean((1, 3))
    return table.reshape(-1, 2)


def distance(shape: str, x: Grid, y: Grid) -> Grid:
    """Return the signed distance to the shape's outline, negative inside; y points down."""
    from_centre = np.hypot(x, y)
    if shape == "circle":
        return from_centre - 0.92
    if shape == "ring":
        return np.abs(from_centre - 0.68) - 0.3
    if shape == "moon":
        return np.maximum(from_centre - 1.0, 0.72 - np.hypot(x - 0.56, y))
    return _polygon(_CORNERS[shape], x, y)


def second_tone(texture: str, x: Grid, y: Grid, inside: Grid) -> NDArray[np.bool_]:
    """Return where a texture has its second tone; `inside` is the signed distance to the outline."""
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
    """Return the distance to a closed polygon's edges, negative inside (a ray crosses an odd number of edges)."""
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


@cache
def pattern_tables() -> NDArray[np.float32]:
    """Return every pattern from 0 to 1 [4,256,256], periodic in both directions."""
    y, x = np.mgrid[0:PATTERN_SIDE, 0:PATTERN_SIDE] * (2 * np.pi / PATTERN_SIDE)
    waves = np.sin(5 * x + 2 * np.sin(2 * y)) + np.sin(3 * y + 4 * x) + np.sin(7 * y - 2 * x + np.sin(3 * x))
    tiles = np.kron(_noise(1)[: PATTERN_SIDE // 16, : PATTERN_SIDE // 16], np.ones((16, 16)))
    tables = [_smooth(_noise(0), 14.0), waves, tiles, _smooth(_noise(2), 2.5)]
    return np.stack([(t - t.min()) / (t.max() - t.min()) for t in tables]).astype(np.float32)


@cache
def noise_table() -> NDArray[np.float32]:
    """Return sensor noise of unit standard deviation [256,256]; frames read it at different offsets."""
    total = np.sum([_noise(3 + i) for i in range(4)], axis=0) - 2.0
    return (total / total.std()).astype(np.float32)


def _noise(number: int) -> NDArray[np.float64]:
    """Return uniform noise from 0 to 1 [256,256]."""
    counters = np.arange(
        number * PATTERN_SIDE * PATTERN_SIDE, (number + 1) * PATTERN_SIDE * PATTERN_SIDE, dtype=np.uint64
    )
    return (splitmix64(counters * STRIDE) >> 11).reshape(PATTERN_SIDE, PATTERN_SIDE) / 2.0**53


def _smooth(noise: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return the noise blurred by a Gaussian, periodic at the edges."""
    frequency = np.fft.fftfreq(PATTERN_SIDE)
    kernel = np.exp(-2 * (np.pi * radius) ** 2 * (frequency[:, None] ** 2 + frequency[None, :] ** 2))
    return np.fft.ifft2(np.fft.fft2(noise) * kernel).real
