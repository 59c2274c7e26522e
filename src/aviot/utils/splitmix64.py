"""Splitmix64: reproducible random bits from a counter, independent of machine and library version."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

W = TypeVar("W", int, NDArray[np.uint64])

STRIDE = 0x9E3779B97F4A7C15  # increment of the state, or multiplier of a counter, before the finaliser
MASK = 2**64 - 1


def splitmix64(state: W) -> W:
    """Return 64 random bits per state: the generator's finaliser, a permutation of the 64-bit numbers."""
    bits: Any = state  # a Python int or an array of 64-bit words: the code below is the same for both
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)
