"""The answer to one request, sent at once or in server-sent events as it is decoded."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol

import torch
from fastapi import Request

from aviot.engine.base import EngineUnavailable
from aviot.serve.answering import Answerer
from aviot.serve.chat import Chat
from aviot.serve.events import Begun, Ended, Event
from aviot.serve.explanations import Explanations
from aviot.serve.metrics import Metrics
from aviot.serve.replies import Reply, error_body
from aviot.serve.settings import Settings
from aviot.web.leaving import left
from aviot.web.refusal import Disconnected, Refused

logger = logging.getLogger(__name__)

LEFT = 499  # status in the metrics of requests whose client left


class AnswerService(Protocol):
    """What answers need of the service."""

    settings: Settings
    metrics: Metrics
    answerer: Answerer
    explanations: Explanations


class SentAnswer:
    """The answer to one request: its work, which ends when the client leaves, and its events."""

    def __init__(self, service: AnswerService, chat: Chat, request: Request) -> None:
        self.service, self.chat = service, chat
        self.reply = Reply(chat, service.settings.name)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._work = asyncio.create_task(self._run())
        self._watch = asyncio.create_task(self._end_when_left(request))

    async def _run(self) -> None:
        try:
            await self.service.answerer.run(self.chat, self._events.put_nowait)
        finally:
            self._events.put_nowait(None)

    async def _end_when_left(self, request: Request) -> None:
        await left(request.receive)
        self._work.cancel()

    async def _each(self) -> AsyncIterator[Event]:
        """Yield the events; raise Refused, or Disconnected if the client has left."""
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, Begun):
                    self.reply.begun = event
                if isinstance(event, Ended):
                    self.reply.ended = event
                    self.service.explanations.add(self.reply.number, event.asked)
                yield event
            await self._finished()
        finally:
            self._watch.cancel()
            self._work.cancel()

    async def _finished(self) -> None:
        try:
            await self._work
        except asyncio.CancelledError:
            raise Disconnected from None
        except Refused:
            raise
        except Exception as error:
            raise failure(error) from error

    async def whole(self, events: AsyncIterator[Event]) -> dict[str, Any]:
        """Return the whole answer."""
        text = "".join([event async for event in events if isinstance(event, str)])
        self.service.metrics.requests.labels(int(HTTPStatus.OK)).inc()
        return self.reply.completion(text)

    async def begin(self) -> AsyncIterator[Event]:
        """Wait until the answer begins, so that a refusal still has a status of its own; return the other events."""
        events = self._each()
        await anext(events)
        return events

    async def sent(self, events: AsyncIterator[Event]) -> AsyncIterator[str]:
        """Yield the answer as server-sent events."""
        requests = self.service.metrics.requests
        try:
            yield _event(self.reply.first())
            async for event in events:
                if isinstance(event, str):
                    yield _event(self.reply.text(event))
            yield _event(self.reply.last())
            if self.chat.include_usage:
                yield _event(self.reply.counts())
            yield "data: [DONE]\n\n"
            requests.labels(int(HTTPStatus.OK)).inc()
        except Disconnected:
            requests.labels(LEFT).inc()
        except Refused as refused:
            requests.labels(int(refused.status)).inc()
            yield _event(error_body(refused))
        except (asyncio.CancelledError, GeneratorExit):
            requests.labels(LEFT).inc()
            raise
        finally:
            with suppress(Exception):
                await events.aclose()  # type: ignore[attr-defined]


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def failure(error: Exception) -> Refused:
    """Return the refusal for an error of the engine or of this program, which the log has in full."""
    if isinstance(error, EngineUnavailable):
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error), code="engine_unavailable", retry=5)
    if isinstance(error, torch.OutOfMemoryError):
        sentence = "the device's memory is full; choose a smaller budget or fewer frames, or send it again later"
        return Refused(HTTPStatus.INSUFFICIENT_STORAGE, sentence, code="out_of_memory")
    if isinstance(error, ValueError):
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="not_answerable")
    logger.error("a request failed", exc_info=error)
    return Refused(
        HTTPStatus.INTERNAL_SERVER_ERROR, "an unexpected error occurred; the server's log has it", code="unexpected"
    )
