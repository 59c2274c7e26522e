"""From a request to the pieces of its answer: find, open, compress, and decode, each as far ahead as there is room."""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any

from aviot import methods
from aviot.backbones.base import VideoInPrompt
from aviot.budget import Budget
from aviot.engine.base import Cancel, Deliver, Finish, Piece
from aviot.serve.cache import ByteCache, SharedWork
from aviot.serve.chat import Chat
from aviot.serve.media import Library, Media
from aviot.serve.metrics import Metrics
from aviot.serve.opened import Opened
from aviot.serve.provenance import provenance_of
from aviot.serve.remote import Fetcher, is_remote
from aviot.serve.settings import Settings
from aviot.serve.streams import Moment, Streams, moment_of, stream_number
from aviot.serve.text import AnswerStream
from aviot.serve.videos import Videos, Worker, video_key
from aviot.session import PreparedPrompt, VideoLM, VideoSession
from aviot.web.body import BodyRoom, Reservation
from aviot.web.refusal import Refused

PROMPTS_AHEAD = 4  # prompts that are compressed and wait inside the engine for a place
RETRY_SECONDS = 2
HELPERS = 4  # threads that decode base64 and hash


@dataclass(frozen=True)
class Begun:
    """The beginning of an answer: the sizes of its prompt."""

    frames: int
    prompt_tokens: int
    visual_before: int
    visual_after: int


@dataclass(frozen=True)
class Ended:
    """The end of an answer."""

    finish: Finish
    tokens: int
    visual_after: int
    budget: Budget
    asked: "AskedAbout"
    stream: dict[str, Any] | None
    provenance: dict[str, Any] | None


Event = Begun | Ended | str
Emit = Callable[[Event], None]


@dataclass(frozen=True)
class AskedAbout:
    """What an explanation of an answer needs: the video's key (None: a stream), and the question with its settings."""

    video: Hashable | None
    question: str
    method: str
    budget: Budget
    max_new_tokens: int


@dataclass(frozen=True, eq=False)
class _Ready:
    """A prompt that is ready for the engine, the session that it is of, and what it asks; of a stream, its moment."""

    prompt: PreparedPrompt
    session: VideoSession
    asked: AskedAbout
    moment: Moment | None = None


@dataclass(frozen=True, eq=False)
class _Tokens:
    """The compressed tokens of one video for one question, and a session that can place them."""

    session: VideoSession
    video: VideoInPrompt

    @property
    def nbytes(self) -> int:
        return self.video.tokens.nbytes


class Answerer:
    """One model, its engine, and the caches; answers requests on one event loop."""

    def __init__(self, lm: VideoLM, settings: Settings, metrics: Metrics, room: BodyRoom) -> None:
        self.lm, self.settings, self.metrics, self.room = lm, settings, metrics, room
        self.library = Library(settings)
        self.fetcher = Fetcher(settings.limits.upload_bytes)
        self.videos, self.streams = Videos(lm, settings, metrics), Streams(lm, settings, metrics)
        self.tokens: ByteCache[_Tokens] = ByteCache(settings.token_bytes, lambda tokens: tokens.nbytes)
        self.helpers, self.compressor = Worker("help", HELPERS), Worker("compress")
        self._compressing: SharedWork[_Tokens] = SharedWork(lm.engine.places + PROMPTS_AHEAD)
        self._turns = asyncio.Semaphore(lm.engine.places + PROMPTS_AHEAD)
        self.waiting = self.running = 0
        metrics.gauge("waiting", "Requests that wait for their turn or are prepared.", lambda: self.waiting)
        metrics.gauge("running", "Requests that the engine works on.", lambda: self.running)
        metrics.gauge("feature_bytes", "Bytes of kept encoder features.", lambda: self.videos.kept.used)
        metrics.gauge("token_bytes", "Bytes of kept compressed tokens.", lambda: self.tokens.used)

    def close(self) -> None:
        """Begin no more work."""
        self.streams.close()
        self.videos.close()
        self.helpers.close()
        self.compressor.close()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold one of the queue's places; refuse if there is none."""
        if self.waiting + self.running >= self.settings.limits.queue:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{self.settings.limits.queue} requests are waiting already; send it again in a few seconds",
                code="queue_full",
                retry=RETRY_SECONDS,
            )
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def run(self, chat: Chat, emit: Emit) -> None:
        """Answer one request; `emit` is called with its beginning, its text in parts, and its end."""
        limits, start = self.settings.limits, time.perf_counter()
        with self.admitted():
            try:
                async with asyncio.timeout(limits.answer_seconds):
                    await self._run(chat, emit, start)
            except TimeoutError:
                raise Refused(
                    HTTPStatus.GATEWAY_TIMEOUT,
                    f"the answer was not complete after {limits.answer_seconds:.0f} s; ask for a shorter one, choose a "
                    "smaller budget, or send it again when there are fewer requests",
                    code="answer_timeout",
                ) from None

    async def _run(self, chat: Chat, emit: Emit, start: float) -> None:
        async with AsyncExitStack() as turn:
            try:
                with self.room.reserved() as held:  # until the video has been read
                    async with asyncio.timeout(self.settings.limits.wait_seconds):
                        found = await self._prepared(chat, turn, held)
            except TimeoutError:
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"the request's turn did not come within {self.settings.limits.wait_seconds:.0f} s; send it again "
                    "later",
                    code="wait_timeout",
                    retry=RETRY_SECONDS,
                ) from None
            ready, encoded = found.prompt, found.session.encoded
            after = len(ready.video.tokens)
            emit(Begun(len(encoded.times), ready.inputs.length, encoded.tokens_before, after))
            finish, count = await self._decode(chat, ready, emit, start)
        made = ready.video.made
        if ready.reducing is not None:
            after = ready.reducing.record.left
            made = ready.reducing.record.result(ready.reducing.made, ready.reducing.order)
        told = None
        if chat.provenance is not None and made is not None:
            told = await self.helpers(provenance_of, made, chat.provenance)
            told |= {} if found.moment is None else {"supports": found.moment.ranges()}
        self.metrics.visual.labels("before").inc(encoded.tokens_before)
        self.metrics.visual.labels("after").inc(after)
        self.metrics.decoded.inc(count)
        self.metrics.seconds.observe(time.perf_counter() - start)
        stream = None if found.moment is None else found.moment.as_dict()
        emit(Ended(finish, count, after, found.asked.budget, found.asked, stream, told))

    async def find(self, url: str, held: Reservation) -> Media:
        """Return the media of an address; `held` counts the bytes that are fetched."""
        if not is_remote(url):
            return await self.helpers(self.library.find, url)
        if not self.settings.allow_remote:
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                "this server fetches nothing from other machines; send the video's data, or a file of its media folder",
                code="remote_not_allowed",
                field="messages",
            )
        return await self.fetcher.fetch(url, held)

    async def _prepared(self, chat: Chat, turn: AsyncExitStack, held: Reservation) -> _Ready:
        """Return the prompt when its turn has come; `turn` holds the turn."""
        budget = chat.budget or self.lm.backbone.default_budget
        url = chat.video.take()
        number = stream_number(url)
        if number is not None:
            return await self._prepared_stream(chat, turn, number, budget)
        with self.metrics.stage("find"):
            media = await self.find(url, held)
        method = methods.get(chat.method)
        asked = AskedAbout(video_key(media, chat.sampling), chat.question, chat.method, budget, chat.max_new_tokens)
        key = (asked.video, chat.question, chat.history, chat.method, budget)
        keeps = chat.provenance is None and method.inside is None
        kept = self.tokens.get(key) if keeps else None
        if keeps:
            self.metrics.tokens.labels("miss" if kept is None else "hit").inc()
        if kept is not None:
            await turn.enter_async_context(self._turns)
            return _Ready(await self.compressor(self._placed, chat, budget, kept), kept.session, asked)
        async with self.videos.opened(media, chat.sampling) as opened:
            await turn.enter_async_context(self._turns)
            with self.metrics.stage("compress"):
                if not keeps:
                    ready = await self.compressor(self._compressed, chat, budget, opened.session, True)
                    return _Ready(ready, opened.session.without_features(), asked)
                async with self._compressing.shared(key, partial(self._keep, key, chat, budget, opened)) as kept:
                    return _Ready(await self.compressor(self._placed, chat, budget, kept), kept.session, asked)

    async def _prepared_stream(self, chat: Chat, turn: AsyncExitStack, number: str, budget: Budget) -> _Ready:
        """Return the prompt of a question about a stream as it is when the question's turn has come."""
        stream = self.streams.find(number)
        if chat.sampling:
            sentence = "a stream keeps frames at the rate that it was opened with; leave frames and fps out"
            raise Refused(HTTPStatus.BAD_REQUEST, sentence, code="stream_not_sampled", field="aviot")
        await turn.enter_async_context(self._turns)
        with self.metrics.stage("compress"):
            session, moment = await self.compressor(moment_of, stream, chat.method)
            ready = await self.compressor(self._compressed, chat, budget, session, chat.provenance is not None)
        asked = AskedAbout(None, chat.question, chat.method, budget, chat.max_new_tokens)
        return _Ready(ready, session.without_features(), asked, moment)

    async def _keep(self, key: Hashable, chat: Chat, budget: Budget, opened: Opened) -> _Tokens:
        ready = await self.compressor(self._compressed, chat, budget, opened.session, False)
        tokens = _Tokens(opened.session.without_features(), replace(ready.video, made=None))
        self.tokens.put(key, tokens)
        return tokens

    def _compressed(self, chat: Chat, budget: Budget, session: VideoSession, record: bool) -> PreparedPrompt:
        return self._checked(chat, budget, session, record=record)

    def _placed(self, chat: Chat, budget: Budget, tokens: _Tokens) -> PreparedPrompt:
        return self._checked(chat, budget, tokens.session, video=tokens.video)

    def _checked(self, chat: Chat, budget: Budget, session: VideoSession, **how: Any) -> PreparedPrompt:
        """Prepare a prompt; a request that the model or the method cannot answer is refused."""
        try:
            prompt = session.prompt(chat.question, history=chat.history)
            new = chat.max_new_tokens
            return session.prepare(prompt, budget=budget, method=chat.method, max_new_tokens=new, **how)
        except ValueError as error:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="not_answerable") from error

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
        submit = self.helpers(self.lm.engine.submit, ready.inputs, max_new_tokens, deliver, ready.reducing)
        submitting = asyncio.create_task(submit)
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_cancel_submitted)
            raise

    async def _decode(self, chat: Chat, ready: PreparedPrompt, emit: Emit, start: float) -> tuple[Finish, int]:
        """Have the engine answer; return why the answer ended and its number of tokens."""
        arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        loop, text, count = asyncio.get_running_loop(), AnswerStream(chat.stops), 0

        def deliver(piece: Piece | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, piece)

        try:
            cancel = await self._submitted(ready, chat.max_new_tokens, deliver)
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
                    said = text.add(piece.text) + (text.end() if piece.finish is not None else "")
                    if said:
                        emit(said)
                    if piece.finish is not None or text.stopped:
                        return ("stop" if text.stopped else piece.finish or "stop"), count
            finally:
                cancel()


def _cancel_submitted(submitting: "asyncio.Task[Cancel]") -> None:
    """End a request whose client left while it was submitted."""
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result()()
