"""Random draws by whole-number arithmetic: the same on any machine and with any version of a library."""

import math
from collections.abc import Sequence
from typing import TypeVar

from aviot.utils.splitmix64 import MASK, STRIDE, splitmix64

T = TypeVar("T")


class Draws:
    """A random stream that follows from its key (splitmix64). Different keys give unrelated streams."""

    def __init__(self, *key: int | str) -> None:
        self._state = 0
        for word in key:
            number = int.from_bytes(word.encode(), "little") if isinstance(word, str) else word
            while True:  # 64 bits at a time
                self._state ^= number & MASK
                self._state = self.word()
                number >>= 64
                if number <= 0:
                    break

    def word(self) -> int:
        """Return the next 64 random bits."""
        self._state = (self._state + STRIDE) & MASK
        return splitmix64(self._state)

    def below(self, count: int) -> int:
        """Return a whole number from 0 to count - 1."""
        return (self.word() * count) >> 64

    def between(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def uniform(self, low: float, high: float) -> float:
        """Return a number between low and high."""
        return low + (high - low) * (self.word() >> 11) / 2**53

    def angle(self) -> float:
        """Return a number between 0 and 2 pi."""
        return self.uniform(0, 2 * math.pi)

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.below(len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """Return `count` of the values without replacement, in random order."""
        pool = list(values)
        for i in range(count):
            j = self.between(i, len(pool) - 1)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return all values in random order."""
        return self.sample(values, len(values))

    def walk(self, values: Sequence[T], steps: int) -> list[T]:
        """Return a random walk of `steps` moves among the values that never stays in place.

        Every state of the walk is by itself uniform, so it shows neither the walk's length nor the states before it.
        """
        states = [self.below(len(values))]
        for _ in range(steps):
            other = self.below(len(values) - 1)
            states.append(other + (other >= states[-1]))
        return [values[state] for state in states]
