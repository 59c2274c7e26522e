"""How much of a source is used: `all`, `first:1000`, `end:25%`, `random:10%`."""

import logging
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from aviot.data.errors import DataError
from aviot.data.shuffle import selected

logger = logging.getLogger(__name__)

Part = Literal["all", "first", "end", "random"]

_STRATEGY = re.compile(r"(first|end|random):(\d{1,15}(?:\.\d{1,9})?%|\d{1,15})")


@dataclass(frozen=True)
class Selection:
    """A part of a source and how large it is: a number of records, or a share of them rounded up."""

    part: Part
    amount: int | Fraction | None = None

    @classmethod
    def parse(cls, text: object, where: str) -> "Selection":
        """Read a `sampling_strategy`."""
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
        """How many of a source's records are taken."""
        if self.amount is None:
            return size
        if isinstance(self.amount, Fraction):
            return math.ceil(self.amount * size)
        if self.amount > size:
            logger.warning("%s has %d records, fewer than the %d asked for; all are taken", name, size, self.amount)
        return min(self.amount, size)

    def numbers(self, places: NDArray[np.int64], size: int, count: int, seed: int, source: int) -> NDArray[np.int64]:
        """Which of a source's `size` records the places 0 .. count - 1 of the selection are."""
        if self.part == "end":
            return places + (size - count)
        if self.part == "random":
            return selected(places, size, seed, source)
        return places
