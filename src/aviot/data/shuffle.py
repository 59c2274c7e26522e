"""Reproducible choices: selections of records, permutations and random draws, all functions of seed and position.

Nothing here has state or depends on a library's generator, whose streams change between versions, so that every
process, machine and later run computes the same.
"""

import logging
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from aviot.data.checks import DataError
from aviot.utils.splitmix64 import STRIDE, splitmix64

logger = logging.getLogger(__name__)

Words = NDArray[np.uint64]

_ROUNDS = 8  # a Feistel cipher mixes well from four on; small sets need a few more
_ORDER, _RATIO, _REPLACEMENT, _SELECTION = range(4)  # purposes of a hash, so that no two share one

Part = Literal["all", "first", "end", "random"]

_STRATEGY = re.compile(r"(first|end|random):(\d{1,15}(?:\.\d{1,9})?%|\d{1,15})")


def mix(*words: Words | int) -> Words:
    """Return a 64-bit hash of 64-bit words, each an array or a number."""
    state: Words = np.zeros(1, np.uint64)
    for word in words:
        state = splitmix64((state ^ np.asarray(word, np.uint64)) + STRIDE)
    return state


def permute(places: NDArray[np.int64], size: int, *key: int) -> NDArray[np.int64]:
    """Return the images of these places under a permutation of 0 .. size - 1 that the key selects.

    The permutation is never stored: a balanced Feistel cipher permutes the 4^h numbers of 2h bits, and results outside
    the set are enciphered again until they are inside (cycle walking), which leaves a permutation of the set.
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
    """Return the numbers of the records at these places of an epoch."""
    return permute(places, size, _ORDER, seed, epoch)


def choice(positions: NDArray[np.int64], choices: int, seed: int) -> NDArray[np.int64]:
    """Return a uniform draw from 0 .. choices - 1 for each position."""
    return (mix(_RATIO, seed, positions.astype(np.uint64)) % np.uint64(choices)).astype(np.int64)


def replacement(position: int, attempt: int, size: int, seed: int) -> int:
    """Return the record that replaces the one at a position; each attempt gives another until all have been tried."""
    return int(permute(np.array([attempt % size]), size, _REPLACEMENT, seed, position)[0])


@dataclass(frozen=True)
class Selection:
    """A part of a file of records, such as `all`, `first:1000`, `end:25%` or `random:10%`.

    `amount` is a number of records, or a share of them that is rounded up.
    """

    part: Part
    amount: int | Fraction | None = None

    @classmethod
    def parse(cls, text: object, where: str) -> "Selection":
        """Return the selection of a `sampling_strategy`; DataError, naming its location, if it is invalid."""
        if text == "all":
            return cls("all")
        match = _STRATEGY.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise DataError(
                f"{where}: sampling_strategy must be all, first:N, end:N or random:N, with N a number of records or a "
                f"share such as 25%; got {str(text)[:80]!r}"
            )
        part, number = match.groups()
        amount = Fraction(number[:-1]) / 100 if number.endswith("%") else int(number)
        if amount <= 0 or (isinstance(amount, Fraction) and amount > 1):
            raise DataError(f"{where}: sampling_strategy {text} must take at least one record and at most 100%")
        return cls(cast(Part, part), amount)

    def count(self, size: int, name: str) -> int:
        """Return the number of records taken from a file of `size`; log a warning if there are too few."""
        if self.amount is None:
            return size
        if isinstance(self.amount, Fraction):
            return math.ceil(self.amount * size)
        if self.amount > size:
            logger.warning("%s has %d records, fewer than the %d asked for; all are taken", name, size, self.amount)
        return min(self.amount, size)

    def numbers(self, places: NDArray[np.int64], size: int, count: int, seed: int, file: int) -> NDArray[np.int64]:
        """Return the record numbers, among a file's `size`, at these places 0 .. count - 1 of the selection."""
        if self.part == "end":
            return places + (size - count)
        if self.part == "random":
            return permute(places, size, _SELECTION, seed, file)
        return places
