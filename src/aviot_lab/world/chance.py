"""Chance from numbers alone: a stream of draws that any machine and any version of a library works out the same."""

import math
from collections.abc import Sequence
from typing import TypeVar

from aviot.utils.splitmix64 import MASK, STRIDE, splitmix64

T = TypeVar("T")


class Draws:
    """Draws that follow from a key, counted up and scattered. Another key gives another, unrelated stream."""

    def __init__(self, *key: int | str) -> None:
        self._state = 0
        for word in key:
            number = int.from_bytes(word.encode(), "little") if isinstance(word, str) else word
            while True:  # any length of word, 64 bits at a time
                self._state ^= number & MASK
                self._state = self.word()
                number >>= 64
                if number <= 0:
                    break

    def word(self) -> int:
        """The next 64 random bits."""
        self._state = (self._state + STRIDE) & MASK
        return splitmix64(self._state)

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return (self.word() * count) >> 64

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        return low + (high - low) * (self.word() >> 11) / 2**53

    def angle(self) -> float:
        """A number between 0 and 2 pi."""
        return self.uniform(0, 2 * math.pi)

    def pick(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """`count` different places of the values, in random order."""
        pool = list(values)
        for i in range(count):
            j = self.between(i, len(pool) - 1)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All values in random order."""
        return self.sample(values, len(values))

    def walk(self, values: Sequence[T], steps: int) -> list[T]:
        """`steps` moves among the values, never staying: each value along the way is, by itself, uniformly any of them.

        That is why one moment of a walk says nothing of how long it is, or of what came before.
        """
        places = [self.below(len(values))]
        for _ in range(steps):
            other = self.below(len(values) - 1)
            places.append(other + (other >= places[-1]))
        return [values[place] for place in places]
