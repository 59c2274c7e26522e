"""Patterns of backgrounds and noise: fixed periodic tables that frames are cut from."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aviot.utils.splitmix64 import STRIDE, splitmix64

SIDE = 256  # a power of two, so that places wrap round by a mask
PATTERNS = ("clouds", "waves", "tiles", "grain")


@cache
def pattern_tables() -> NDArray[np.float32]:
    """Every pattern from 0 to 1 [4,256,256], periodic both ways."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] * (2 * np.pi / SIDE)
    waves = np.sin(5 * x + 2 * np.sin(2 * y)) + np.sin(3 * y + 4 * x) + np.sin(7 * y - 2 * x + np.sin(3 * x))
    tiles = np.kron(_noise(1)[: SIDE // 16, : SIDE // 16], np.ones((16, 16)))
    tables = [_smooth(_noise(0), 14.0), waves, tiles, _smooth(_noise(2), 2.5)]
    return np.stack([(t - t.min()) / (t.max() - t.min()) for t in tables]).astype(np.float32)


@cache
def noise_table() -> NDArray[np.float32]:
    """A sensor's noise of deviation one [256,256]; frames take it from different places."""
    total = np.sum([_noise(3 + i) for i in range(4)], axis=0) - 2.0
    return (total / total.std()).astype(np.float32)


def _noise(number: int) -> NDArray[np.float64]:
    """Uniform noise from 0 to 1 [256,256]."""
    counters = np.arange(number * SIDE * SIDE, (number + 1) * SIDE * SIDE, dtype=np.uint64)
    return (splitmix64(counters * STRIDE) >> 11).reshape(SIDE, SIDE) / 2.0**53


def _smooth(noise: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Blurred by a Gaussian, round the edges."""
    frequency = np.fft.fftfreq(SIDE)
    kernel = np.exp(-2 * (np.pi * radius) ** 2 * (frequency[:, None] ** 2 + frequency[None, :] ** 2))
    return np.fft.ifft2(np.fft.fft2(noise) * kernel).real
