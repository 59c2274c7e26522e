"""The interface of an engine, which turns decoder inputs into text, and a stopwatch for its parts."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from aviot.methods.aviot.finite import FiniteFlags
from aviot.methods.base import Compressed
from aviot.methods.inside import InsideMethod
from aviot.methods.reduction import Reduced

Report = Callable[[str], None]
"""A function that is called with the name of each step as it begins."""


@dataclass(frozen=True)
class DecoderInput:
    """A batch of prompts with their visual tokens in place, in the layout of a backbone's decoder.

    `arguments` are those of the model's `generate`. `visual` has one pair per prompt: the position of its first visual
    token in the padded sequence, and their number; where text stands between them, `scattered` has the positions of
    all. `finite` are flags of the compression that have not been read yet.
    """

    arguments: dict[str, Any]
    length: int
    visual: tuple[tuple[int, int], ...]
    finite: tuple[FiniteFlags, ...] = ()
    scattered: tuple[torch.Tensor, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens at the start of what `generate` returns that belong to the prompt."""
        return self.length if "input_ids" in self.arguments else 0


@dataclass
class Reducing:
    """A method that acts inside the decoder on one prompt, and the record of what it did, set during the prefill.

    `made` and `order` are the tokens that enter: a method's result, and each visual token's index in it (-1 for
    structure tokens). `limit` is the number of tokens that the budget leaves (None: the method's own share).
    """

    method: InsideMethod
    made: Compressed
    order: torch.Tensor
    limit: int | None
    reduced: Reduced | None = None
    counts: list[int] = field(default_factory=list)  # visual tokens that each layer read

    @property
    def record(self) -> Reduced:
        """What became of each token."""
        assert self.reduced is not None  # the prefill has run
        return self.reduced


@dataclass
class Stopwatch:
    """Measured milliseconds of named parts, including the device's work."""

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
        """Return seconds, after the device has finished its queued work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def rounded(self) -> dict[str, float]:
        """Return the milliseconds so far, rounded to tenths."""
        return {name: round(value, 1) for name, value in self.spent.items()}


class Engine(ABC):
    """A runtime that turns prompts with visual tokens into text; independent of methods and model families."""

    name: str

    @abstractmethod
    def generate(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[str]:
        """Return the greedy answer to each prompt; prefill and decoding are timed separately.

        Raises ValueError if logits or values of the compression are not finite, and if a method that acts inside the
        decoder (`reducing`, for one prompt) does not fit this one.
        """

    @abstractmethod
    def stream(self, inputs: DecoderInput, max_new_tokens: int, reducing: Reducing | None = None) -> Iterator[str]:
        """Return the greedy answer to one prompt in pieces, as they are decoded; arguments are checked at once."""
