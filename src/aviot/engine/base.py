"""The interface of an engine: decoder inputs in, text out, with the time that each part took."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from aviot.methods.aviot.finite import FiniteFlags
from aviot.methods.base import DecoderMethod

Report = Callable[[str], None]
"""Told the name of each step as it begins."""


@dataclass(frozen=True)
class DecoderInput:
    """Prompts with their visual tokens in place, as a backbone lays them out for its decoder.

    `arguments` are those of the model's `generate`. `visual` has the first visual token and their number, per prompt,
    counted in the padded sequence. `finite` are checks that nobody has read yet.
    """

    arguments: dict[str, Any]
    length: int
    visual: tuple[tuple[int, int], ...]
    finite: tuple[FiniteFlags, ...] = ()


@dataclass(frozen=True)
class Pruning:
    """A method that drops visual tokens inside the decoder, and how many of each prompt stay."""

    method: DecoderMethod
    counts: tuple[int, ...]
    kept: list[torch.Tensor] = field(default_factory=list)  # the tokens that stayed, filled in during the prefill


@dataclass
class Stopwatch:
    """Milliseconds of named parts, with the device's work included where it was asked for."""

    device: torch.device
    report: Report = lambda _: None
    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a block and report that it has begun."""
        self.report(name)
        start = self.now()
        yield
        self.spent[name] = 1000 * (self.now() - start)

    def now(self) -> float:
        """Return seconds, after the device has finished what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def rounded(self) -> dict[str, float]:
        """Return what was spent so far, in tenths of a millisecond."""
        return {name: round(value, 1) for name, value in self.spent.items()}


class Engine(ABC):
    """Turns prompts with visual tokens into text; knows neither methods nor model families."""

    name: str

    @abstractmethod
    def generate(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, pruning: Pruning | None = None
    ) -> Sequence[str]:
        """Return the greedy answer to each prompt; prefill and the tokens after it are timed apart.

        Raises ValueError if logits, or what the inputs were made from, are not finite.
        """

    @abstractmethod
    def stream(self, inputs: DecoderInput, max_new_tokens: int) -> Iterator[str]:
        """Yield the greedy answer to one prompt in pieces, as they are decoded."""
