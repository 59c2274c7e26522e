"""The interface of an engine, which turns decoder inputs into text, and a stopwatch for its parts."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Literal

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
        """The fate of each visual token."""
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


class EngineUnavailable(RuntimeError):
    """Raised when an engine cannot answer now, and may again later: it has gone away, or it is starting."""


SMALLEST = 1e-30  # of a probability whose logarithm is taken

Finish = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Piece:
    """The next part of an answer: the text that is complete by now, and the tokens decoded since the last piece.

    The text may be empty while a character is incomplete. The joined text of all pieces, stripped, is what `generate`
    returns. Only the last piece has a `finish`: "stop" at an end token, which is among the tokens, "length" at the
    largest number of tokens, "cancelled" if the request was cancelled. `probabilities` are those of the tokens but the
    end token, if the engine tells them.
    """

    text: str
    tokens: tuple[int, ...]
    finish: Finish | None = None
    probabilities: tuple[float, ...] = ()


Deliver = Callable[[Piece | Exception], None]
"""A function that takes the pieces of one answer in order; the last delivery is a piece with a `finish`, or an error.

It is called from any thread, also that which cancels, so that it must return at once and raise nothing. By the last
delivery the request's place is free.
"""

Cancel = Callable[[], None]
"""A function that ends a request as soon as possible and returns at once; after the last delivery it does nothing."""


@dataclass(frozen=True)
class Generated:
    """A greedy answer, and the probability of each of its tokens; the end token is not one of them."""

    text: str
    probabilities: tuple[float, ...] = ()  # none if the engine does not tell

    @property
    def probability(self) -> float | None:
        """The geometric mean of the tokens' probabilities, comparable for answers of any length; None if not known.

        For an answer of one token, such as an option's letter, it is that token's probability.
        """
        if not self.probabilities:
            return None
        return math.exp(sum(math.log(max(one, SMALLEST)) for one in self.probabilities) / len(self.probabilities))


class Engine(ABC):
    """A runtime that turns prompts with visual tokens into text; independent of methods and model families.

    `places` is the number of requests that `submit` runs at a time; further ones wait inside the engine, in order.
    `tells_probabilities` says whether answers and pieces have those of their tokens.
    """

    name: str
    places: int = 1
    tells_probabilities: bool = False

    @abstractmethod
    def generate(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[str]:
        """Return the greedy answer to each prompt; prefill and decoding are timed separately.

        Raises ValueError if logits or values of the compression are not finite, and if a method that acts inside the
        decoder (`reducing`, for one prompt) does not fit this one.
        """

    def generate_scored(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[Generated]:
        """Return the answers of `generate` with their probabilities, if the engine tells them."""
        return [Generated(text) for text in self.generate(inputs, max_new_tokens, watch, reducing)]

    @abstractmethod
    def submit(
        self, inputs: DecoderInput, max_new_tokens: int, deliver: Deliver, reducing: Reducing | None = None
    ) -> Cancel:
        """Start the greedy answer to one prompt, and return at once; safe to call from any thread.

        Arguments are checked first (ValueError). Errors of the decoder, such as NaN, are delivered: ValueError if the
        request is to blame, EngineUnavailable if it can be sent again.
        """

    def pieces(self, inputs: DecoderInput, max_new_tokens: int, reducing: Reducing | None = None) -> "Pieces":
        """Return the greedy answer to one prompt in pieces; arguments are checked at once."""
        return Pieces(lambda deliver: self.submit(inputs, max_new_tokens, deliver, reducing))

    def stream(self, inputs: DecoderInput, max_new_tokens: int, reducing: Reducing | None = None) -> Iterator[str]:
        """Return the text of the greedy answer to one prompt in pieces; arguments are checked at once."""
        return _texts(self.pieces(inputs, max_new_tokens, reducing))

    def problem(self) -> str | None:
        """Return why the engine cannot answer at the moment, in a sentence; None if it can, as far as is known."""
        return None

    def close(self) -> None:  # noqa: B027  # most engines have nothing to close
        """End all requests with EngineUnavailable and free the engine's threads and connections."""


class Pieces(Iterator[Piece]):
    """The pieces of one answer as they arrive; `close`, or dropping the iterator, ends the request."""

    def __init__(self, start: Callable[[Deliver], Cancel]) -> None:
        self._arrived: SimpleQueue[Piece | Exception] = SimpleQueue()
        self._over = False
        self._cancel: Cancel | None = None
        self._cancel = start(self._arrived.put)

    def __next__(self) -> Piece:
        if self._over:
            raise StopIteration
        piece = self._arrived.get()
        self._over = isinstance(piece, Exception) or piece.finish is not None
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        """End the request and wait until its place is free."""
        if self._cancel is not None:
            self._cancel()
        while not self._over:
            piece = self._arrived.get()
            self._over = isinstance(piece, Exception) or piece.finish is not None

    def __del__(self) -> None:
        if self._cancel is not None and not self._over:
            self._cancel()


def _texts(pieces: Pieces) -> Iterator[str]:
    with closing(pieces):
        yield from (piece.text for piece in pieces if piece.text)
