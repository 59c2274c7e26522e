"""From a request to the pieces of its answer: find, open, compress, and decode, each as far ahead as there is room."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any

from aviot import methods
from aviot.auto_budget import Chosen, Step
from aviot.backbones.base import VideoInPrompt
from aviot.budget import AutoBudget, Budget
from aviot.serve.cache import ByteCache, SharedWork
from aviot.serve.chat import Chat
from aviot.serve.decoding import Decoded, Decoder
from aviot.serve.events import AskedAbout, Begun, Emit, Ended
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


@dataclass(frozen=True, eq=False)
class _Ready:
    """A prompt that is ready for the engine, the session that it is of, and what it asks; of a stream, its moment.

    With an automatic budget, `again` prepares the same question under another budget, `steps` are those that were
    tried, and `reason` says why the last was accepted.
    """

    prompt: PreparedPrompt
    session: VideoSession
    asked: AskedAbout
    moment: Moment | None = None
    again: Callable[[Budget], Awaitable[PreparedPrompt]] | None = None
    steps: tuple[Step, ...] = ()
    reason: str = ""


@dataclass(frozen=True, eq=False)
class _Tokens:
    """The compressed tokens of one video for one question, and a session that can place them."""

    session: VideoSession
    video: VideoInPrompt

    @property
    def nbytes(self) -> int:
        return self.video.tokens.nbytes


def _asked_about(chat: Chat, video: Hashable | None, budget: Budget) -> AskedAbout:
    """Return what an explanation of a request's answer needs."""
    return AskedAbout(video, chat.question, chat.method, budget, chat.max_new_tokens, chat.history)


class Answerer:
    """One model, its engine, and the caches; answers requests on one event loop."""

    def __init__(
        self, lm: VideoLM, settings: Settings, metrics: Metrics, room: BodyRoom, library: Library | None = None
    ) -> None:
        self.lm, self.settings, self.metrics, self.room = lm, settings, metrics, room
        self.library = library or Library(settings)
        self.fetcher = Fetcher(settings.limits.upload_bytes)
        self.videos, self.streams = Videos(lm, settings, metrics), Streams(lm, settings, metrics)
        self.tokens: ByteCache[_Tokens] = ByteCache(settings.token_bytes, lambda tokens: tokens.nbytes)
        self.helpers, self.compressor = Worker("help", HELPERS), Worker("compress")
        self._compressing: SharedWork[_Tokens] = SharedWork(lm.engine.places + PROMPTS_AHEAD)
        self._turns = asyncio.Semaphore(lm.engine.places + PROMPTS_AHEAD)
        self.decoder = Decoder(lm.engine, self.helpers, metrics)
        metrics.gauge("waiting", "Requests that wait for their turn or are prepared.", lambda: self.decoder.waiting)
        metrics.gauge("running", "Requests that the engine works on.", lambda: self.decoder.running)
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
        if self.decoder.waiting + self.decoder.running >= self.settings.limits.queue:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{self.settings.limits.queue} requests are waiting already; send it again in a few seconds",
                code="queue_full",
                retry=RETRY_SECONDS,
            )
        with self.decoder.admitted():
            yield

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
            encoded = found.session.encoded
            emit(Begun(len(encoded.times), encoded.tokens_before))
            if found.again is None:
                text, new = AnswerStream(chat.stops), chat.max_new_tokens
                decoded = await self.decoder.decode(found.prompt, new, text, emit, start)
            else:
                found, decoded = await self._decode_auto(chat, found, emit, start)
        emit(await self._ended(chat, found, decoded))
        self.metrics.seconds.observe(time.perf_counter() - start)

    async def _ended(self, chat: Chat, found: _Ready, decoded: Decoded) -> Ended:
        """Count what was read and decoded, and return the end of an answer."""
        ready, before = found.prompt, found.session.encoded.tokens_before
        made, after = ready.video.made, len(ready.video.tokens)
        if ready.reducing is not None:
            after = ready.reducing.record.left
            made = ready.reducing.record.result(ready.reducing.made, ready.reducing.order)
        told = None
        if chat.provenance is not None and made is not None:
            told = await self.helpers(provenance_of, made, chat.provenance)
            told |= {} if found.moment is None else {"supports": found.moment.ranges()}
        self.metrics.visual.labels("before").inc(before)
        self.metrics.visual.labels("after").inc(sum(step.tokens for step in found.steps) or after)
        self.metrics.decoded.inc(decoded.tokens)
        return Ended(
            finish=decoded.finish,
            tokens=decoded.tokens,
            prompt_tokens=ready.inputs.length,
            visual_after=after,
            budget=found.asked.budget,
            asked=found.asked,
            stream=None if found.moment is None else found.moment.as_dict(),
            provenance=told,
            steps=found.steps,
            reason=found.reason,
        )

    async def _decode_auto(self, chat: Chat, found: _Ready, emit: Emit, start: float) -> tuple[_Ready, Decoded]:
        """Decode under one budget after another until an answer is sure enough, which is then sent in one piece."""
        assert isinstance(chat.budget, AutoBudget)
        assert found.again is not None
        encoded, tried = found.session.encoded, list[Step]()
        chosen = Chosen.of(chat.budget, self.lm.backbone.calibration)
        steps = chat.budget.steps(len(encoded.times), encoded.tokens_per_frame)
        for place, step in enumerate(steps):
            if place:
                found = replace(found, prompt=await found.again(step), asked=replace(found.asked, budget=step))
            text, said, new = AnswerStream(chat.stops), list[str](), chat.max_new_tokens
            decoded = await self.decoder.decode(found.prompt, new, text, said.append, start)
            tried.append(Step.of(step, len(found.prompt.video.tokens), decoded.probability))
            if (decoded.probability or 0.0) >= chosen.quality:
                break
        emit("".join(said))
        return replace(found, steps=tuple(tried), reason=chosen.explained(tried, steps)), decoded

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
        budget = self._budget(chat)
        url = chat.video.take()
        number = stream_number(url)
        if number is not None:
            return await self._prepared_stream(chat, turn, number, budget)
        with self.metrics.stage("find"):
            media = await self.find(url, held)
        method, video = methods.get(chat.method), video_key(media, chat.sampling)
        if isinstance(budget, AutoBudget):
            opened = await turn.enter_async_context(self.videos.opened(media, chat.sampling))
            await turn.enter_async_context(self._turns)
            return await self._first_try(chat, budget, opened.session, video, None)
        asked = _asked_about(chat, video, budget)
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

    def _budget(self, chat: Chat) -> Budget | AutoBudget:
        """Return a request's budget; refuse an automatic one if the engine does not tell how sure it is."""
        if not isinstance(chat.budget, AutoBudget):
            return chat.budget or self.lm.backbone.default_budget
        if not methods.get(chat.method).compresses:
            return self.lm.backbone.default_budget  # there is nothing to choose
        if not self.lm.engine.tells_probabilities:
            sentence = (
                "this server's engine does not tell how probable its answers are, which an automatic budget needs; "
                "give a ratio"
            )
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, code="no_probabilities", field="aviot.budget")
        return chat.budget

    async def _first_try(
        self, chat: Chat, auto: AutoBudget, session: VideoSession, video: Hashable | None, moment: Moment | None
    ) -> _Ready:
        """Return the prompt under the smallest budget of an automatic one."""

        async def prepared(step: Budget) -> PreparedPrompt:
            with self.metrics.stage("compress"):
                return await self.compressor(self._compressed, chat, step, session, chat.provenance is not None)

        first = auto.steps(len(session.encoded.times), session.encoded.tokens_per_frame)[0]
        asked = _asked_about(chat, video, first)
        return _Ready(await prepared(first), session, asked, moment, prepared)

    async def _prepared_stream(
        self, chat: Chat, turn: AsyncExitStack, number: str, budget: Budget | AutoBudget
    ) -> _Ready:
        """Return the prompt of a question about a stream as it is when the question's turn has come."""
        stream = self.streams.find(number)
        if chat.sampling:
            sentence = "a stream keeps frames at the rate that it was opened with; leave frames and fps out"
            raise Refused(HTTPStatus.BAD_REQUEST, sentence, code="stream_not_sampled", field="aviot")
        await turn.enter_async_context(self._turns)
        with self.metrics.stage("compress"):
            session, moment = await self.compressor(moment_of, stream, chat.question, budget, chat.method)
        if isinstance(budget, AutoBudget):
            return await self._first_try(chat, budget, session, None, moment)
        with self.metrics.stage("compress"):
            ready = await self.compressor(self._compressed, chat, budget, session, chat.provenance is not None)
        asked = _asked_about(chat, None, budget)
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
