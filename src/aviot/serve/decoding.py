"""The decoder's part of an answer: prompts go to the engine, and its pieces come back to the event loop."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from aviot.engine.base import Cancel, Deliver, Engine, Finish, Generated, Piece
from aviot.serve.metrics import Metrics
from aviot.serve.text import AnswerStream
from aviot.serve.videos import Worker
from aviot.session import PreparedPrompt
from aviot.web.refusal import Refused


@dataclass(frozen=True)
class Decoded:
    """Why an answer ended, its number of tokens, and its probability, if the engine tells it."""

    finish: Finish
    tokens: int
    probability: float | None


class Decoder:
    """Sends prompts to an engine and counts those that wait and those at work; for one event loop."""

    def __init__(self, engine: Engine, helpers: Worker, metrics: Metrics) -> None:
        self.engine, self.helpers, self.metrics = engine, helpers, metrics
        self.waiting = self.running = 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a request as waiting where it is not at work."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def decode(
        self, ready: PreparedPrompt, max_new_tokens: int, text: AnswerStream, say: Callable[[str], None], start: float
    ) -> Decoded:
        """Have the engine answer; `say` gets the text in parts."""
        arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        loop, count, scores = asyncio.get_running_loop(), 0, list[float]()

        def deliver(piece: Piece | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, piece)

        try:
            cancel = await self._submitted(ready, max_new_tokens, deliver)
        except ValueError as error:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="not_answerable") from error
        with self._at_work():
            try:
                while True:
                    piece = await arrived.get()
                    if isinstance(piece, Exception):
                        raise piece
                    if not count and piece.tokens:
                        self.metrics.first.observe(time.perf_counter() - start)
                    count += len(piece.tokens)
                    scores += piece.probabilities
                    said = text.add(piece.text) + (text.end() if piece.finish is not None else "")
                    if said:
                        say(said)
                    if piece.finish is not None or text.stopped:
                        finish = "stop" if text.stopped else piece.finish or "stop"
                        return Decoded(finish, count, Generated("", tuple(scores)).probability)
            finally:
                cancel()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.waiting += 1

    async def _submitted(self, ready: PreparedPrompt, max_new_tokens: int, deliver: Deliver) -> Cancel:
        """Submit a prompt in a thread: engines outside this process copy it first, which takes time."""
        submit = self.helpers(self.engine.submit, ready.inputs, max_new_tokens, deliver, ready.reducing)
        submitting = asyncio.create_task(submit)
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_cancel_submitted)
            raise


def _cancel_submitted(submitting: "asyncio.Task[Cancel]") -> None:
    """End a request whose client left while it was submitted."""
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result()()
