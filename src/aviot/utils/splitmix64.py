"""Splitmix64: random bits from a count, the same on any machine and with any version of a library."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

W = TypeVar("W", int, NDArray[np.uint64])

STRIDE = 0x9E3779B97F4A7C15  # what counts are multiplied by, or a state is counted up by, before it is scattered
MASK = 2**64 - 1


def splitmix64(state: W) -> W:
    """Return 64 random bits per state: the generator's finaliser, a permutation of the 64-bit numbers."""
    bits: Any = state  # numbers of any length or of 64 bits: what is written below is the same
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)
