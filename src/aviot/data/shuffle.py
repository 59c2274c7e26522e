"""Chance from numbers alone: hashes and permutations that any process, machine or later run works out the same.

Nothing here has a state and nothing depends on a library's generator, whose streams change from version to version.
"""

import numpy as np
from numpy.typing import NDArray

from aviot.utils.splitmix64 import STRIDE, splitmix64

Words = NDArray[np.uint64]

_ROUNDS = 8  # a Feistel cipher mixes well from four on; small sets need a few more
_ORDER, _RATIO, _REPLACEMENT, _SELECTION = range(4)  # what a hash is for, so that no two purposes share one


def mix(*words: Words | int) -> Words:
    """A 64-bit hash of 64-bit words, each an array or a number: scattered word after word."""
    state: Words = np.zeros(1, np.uint64)
    for word in words:
        state = splitmix64((state ^ np.asarray(word, np.uint64)) + STRIDE)
    return state


def permute(places: NDArray[np.int64], size: int, *key: int) -> NDArray[np.int64]:
    """Where a permutation of 0 .. size - 1, chosen by the key, sends these places; nothing of its size is held.

    A balanced Feistel cipher permutes the 4^h numbers of 2h bits; what falls outside the set is sent on until it is
    inside, which leaves a permutation of the set.
    """
    half = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    values = np.asarray(places, np.uint64)
    values = _encipher(values, half, key)
    while (outside := values >= size).any():
        values[outside] = _encipher(values[outside], half, key)
    return values.astype(np.int64)


def _encipher(values: Words, half: np.uint64, key: tuple[int, ...]) -> Words:
    mask = np.uint64((1 << int(half)) - 1)
    left, right = values >> half, values & mask
    for number in range(_ROUNDS):
        left, right = right, left ^ (mix(*key, number, right) & mask)
    return (left << half) | right


def shuffled(places: NDArray[np.int64], size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Numbers of the records at these places of an epoch."""
    return permute(places, size, _ORDER, seed, epoch)


def selected(places: NDArray[np.int64], size: int, seed: int, source: int) -> NDArray[np.int64]:
    """Numbers of the records that a random selection of a source begins with."""
    return permute(places, size, _SELECTION, seed, source)


def choice(positions: NDArray[np.int64], choices: int, seed: int) -> NDArray[np.int64]:
    """One of 0 .. choices - 1 for each position, uniformly."""
    return (mix(_RATIO, seed, positions.astype(np.uint64)) % np.uint64(choices)).astype(np.int64)


def replacement(position: int, attempt: int, size: int, seed: int) -> int:
    """Number of the record that stands in for the one at a position; another at each attempt, until all have been."""
    return int(permute(np.array([attempt % size]), size, _REPLACEMENT, seed, position)[0])
