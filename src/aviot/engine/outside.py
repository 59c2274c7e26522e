"""The common part of engines outside this process: prompts leave as embeddings, answers come back by tokens."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from queue import SimpleQueue
from typing import Any

from torch import nn

from aviot.engine.base import Cancel, DecoderInput, Deliver, Engine, EngineUnavailable, Piece, Reducing, Stopwatch
from aviot.engine.decoder_folder import check_settings, decoder_config
from aviot.engine.prompt_rows import PromptRow, UnsupportedDecoder, prompt_rows
from aviot.engine.text import AnswerText

FINISHED = ("stop", "length")
"""vLLM's reasons to end a complete answer; it gives others, such as "abort", for what it could not finish."""

CLOSE_SECONDS = 30.0
"""Longest wait for requests to end when an engine is closed."""


class OutsideEngine(Engine):
    """An engine that sends prompt embeddings to a decoder in another process, many at a time.

    `model` merges text and visual tokens in this process; its decoder's layers are not used.
    """

    places = 64  # a bound on the prompts that this process holds; what they are sent to batches them itself

    def __init__(self, model: Any, tokenizer: Any) -> None:
        decoder_config(model)  # refuses decoders that cannot run elsewhere
        check_settings(model)
        self.model, self.tokenizer = model, tokenizer
        self._merging = threading.Lock()  # models keep state of their own while they merge
        self._running: set[asyncio.Task[None]] = set()
        self._closed, self._entering = False, threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{self.name}-engine", daemon=True)
        self._thread.start()

    @abstractmethod
    def decode(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of the greedy answer to one prompt as they come; closing it ends the request."""

    def generate(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[str]:
        """Return the greedy answer to each prompt; the time of the first token counts as prefill."""
        watch.report("generate")
        start = watch.now()
        first = 0.0
        arrived: SimpleQueue[tuple[int, Piece | Exception]] = SimpleQueue()
        rows = self._rows(inputs, reducing)

        def deliver_to(place: int) -> Deliver:
            return lambda piece: arrived.put((place, piece))

        cancels = [self._start(row, max_new_tokens, deliver_to(place)) for place, row in enumerate(rows)]
        texts, left = [""] * len(rows), len(rows)
        try:
            while left:
                place, piece = arrived.get()
                first = first or watch.now()
                if isinstance(piece, Exception):
                    raise piece
                texts[place] += piece.text
                left -= piece.finish is not None
        finally:
            for cancel in cancels:
                cancel()
        watch.spent |= {"prefill": 1000 * (first - start), "generate": 1000 * (watch.now() - first)}
        return [text.strip() for text in texts]

    def submit(
        self, inputs: DecoderInput, max_new_tokens: int, deliver: Deliver, reducing: Reducing | None = None
    ) -> Cancel:
        """Start the greedy answer to one prompt."""
        (row,) = self._rows(inputs, reducing)
        return self._start(row, max_new_tokens, deliver)

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        return frozenset(ends if isinstance(ends, list) else () if ends is None else (ends,))

    def free_decoder(self) -> None:
        """Free the layers of this process's copy of the decoder, which is needed no more."""
        self.model.get_decoder().layers = nn.ModuleList()

    def close(self) -> None:
        """End all requests, and the thread that waits for them."""
        with self._entering:  # whatever has begun before is ended, and nothing begins afterwards
            if self._closed:
                return
            self._closed = True
            ending = asyncio.run_coroutine_threadsafe(self._end_all(), self._loop)
        with suppress(TimeoutError):
            ending.result(CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the engine's event loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def release(self) -> None:
        """Free what the subclass holds, inside the loop; called once, when the engine is closed."""

    async def _end_all(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.release()

    def _rows(self, inputs: DecoderInput, reducing: Reducing | None) -> list[PromptRow]:
        self._check_open()
        if reducing is not None:
            raise UnsupportedDecoder(
                f"method {reducing.method.name!r} drops tokens inside the decoder, which the {self.name} engine does "
                "not run; answer with the transformers engine, or choose a method that acts before the decoder"
            )
        with self._merging:
            return prompt_rows(self.model, inputs)

    def _start(self, row: PromptRow, max_new_tokens: int, deliver: Deliver) -> Cancel:
        cancelled = threading.Event()
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(self._answer(row, max_new_tokens, deliver)))
            self._running.add(tasks[0])
            tasks[0].add_done_callback(over)
            if cancelled.is_set():
                tasks[0].cancel()

        def over(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            if task.cancelled():
                closed = EngineUnavailable(f"the {self.name} engine was closed before the answer was complete")
                deliver(Piece("", (), "cancelled") if cancelled.is_set() else closed)
            elif isinstance(error := task.exception(), Exception):
                deliver(error)

        def cancel() -> None:
            cancelled.set()
            with suppress(RuntimeError):  # the loop has been closed, and every request with it
                self._loop.call_soon_threadsafe(lambda: tasks and tasks[0].cancel())

        with self._entering:
            self._check_open()
            self._loop.call_soon_threadsafe(begin)
        return cancel

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable(f"the {self.name} engine has been closed; start another one")

    async def _answer(self, row: PromptRow, max_new_tokens: int, deliver: Deliver) -> None:
        """Deliver an answer's pieces, the last one with the reason of its end."""
        text = AnswerText(self.tokenizer)
        async with aclosing(self.decode(row, max_new_tokens)) as arriving:
            async for tokens in arriving:
                deliver(Piece(text.add(tokens), tokens))
        ended = bool(text.tokens) and text.tokens[-1] in self.ends
        deliver(Piece(text.add((), last=True), (), "stop" if ended else "length"))
