"""The server's routes."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import torch
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import aviot
from aviot.engine.base import EngineUnavailable
from aviot.serve import metrics as formats
from aviot.serve.answering import Answerer
from aviot.serve.chat import Chat, ChatRequest, check_model, parse
from aviot.serve.documents import document_page
from aviot.serve.events import Begun, Ended, Event
from aviot.serve.explanations import Explanations
from aviot.serve.metrics import Metrics
from aviot.serve.replies import Reply, error_body
from aviot.serve.settings import Settings
from aviot.serve.stream_requests import JSON_TYPE, PICTURES, FramesRequest, StreamRequest, parse_frames, parse_open
from aviot.session import VideoLM
from aviot.web.body import BodyRoom, Headers, header, read_body
from aviot.web.refusal import Disconnected, Refused

logger = logging.getLogger(__name__)

LEFT = 499  # status in the metrics of requests whose client left
OPEN = ("/health", "/docs", "/openapi.json", "/explain/")
"""Paths that need no API key: nothing of anybody's is there, or its address cannot be guessed."""


def _body(model: type[BaseModel], *more: str, required: bool = True) -> dict[str, Any]:
    """Return the description of a request's body: JSON of a model, or data of other types."""
    schema = {"schema": model.model_json_schema()}
    data = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"content": {JSON_TYPE: schema} | dict.fromkeys(more, data), "required": required}}


BODY, STREAM_BODY = _body(ChatRequest), _body(StreamRequest, required=False)
FRAMES_BODY = _body(FramesRequest, *PICTURES, "video/*")


class Service:
    """The application: one model behind the OpenAI protocol. Make it on the event loop's thread."""

    def __init__(self, lm: VideoLM, settings: Settings) -> None:
        self.lm, self.settings, self.metrics = lm, settings, Metrics()
        self.room = BodyRoom(settings.limits.upload_bytes, settings.limits.uploads_bytes)
        self.answerer = Answerer(lm, settings, self.metrics, self.room)
        self.explanations = Explanations(self.answerer, settings.explanations)
        self.metrics.gauge("upload_bytes", "Bytes of requests that are held.", lambda: self.room.used)
        self.ending = False
        self.app = FastAPI(title="AVIOT", version=aviot.__version__, docs_url=None, redoc_url=None)
        self._add_routes()

    def close(self) -> None:
        """Free the threads and the engine."""
        self.explanations.close()
        self.answerer.close()
        self.lm.engine.close()

    def _add_routes(self) -> None:
        app = self.app
        app.post("/v1/chat/completions", summary="Answer a question about a video", openapi_extra=BODY)(self.chat)
        app.post("/v1/streams", summary="Open a stream", status_code=201, openapi_extra=STREAM_BODY)(self.open_stream)
        app.get("/v1/streams/{number}", summary="Tell a stream's counts")(self.stream)
        app.post("/v1/streams/{number}/frames", summary="Send frames of a stream", openapi_extra=FRAMES_BODY)(self.push)
        app.delete("/v1/streams/{number}", summary="End a stream")(self.end_stream)
        app.get("/v1/models", summary="List the model")(self.models)
        app.get("/v1/models/{name:path}", summary="Describe the model")(self.model)
        app.get("/health", summary="Tell whether requests are answered")(self.health)
        app.get("/metrics", summary="Metrics in Prometheus' format")(self.metrics_page)
        app.get("/explain/{number}", summary="Show where an answer came from")(self.explain)
        app.get("/docs", include_in_schema=False)(self.documents)
        app.add_exception_handler(Refused, _refused)
        app.add_exception_handler(HTTPException, _not_routed)
        app.add_exception_handler(RequestValidationError, _not_routed)
        app.add_exception_handler(Exception, _unexpected)

    async def chat(self, request: Request) -> Response:
        """Answer one question about one video, at once or as a stream of server-sent events."""
        try:
            reply = await self._chat(request)
        except Disconnected:
            self.metrics.requests.labels(LEFT).inc()
            return Response(status_code=int(HTTPStatus.BAD_REQUEST))
        except Refused as refused:
            self.metrics.requests.labels(int(refused.status)).inc()
            raise
        return reply

    async def _chat(self, request: Request) -> Response:
        headers = request.scope["headers"]
        kind = _content_type(headers)
        if kind != JSON_TYPE:
            sentence = f"expected a body of type {JSON_TYPE}, got {kind[:80] or 'none'}"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, code="wrong_type")
        with self.room.reserved() as held:
            body = await read_body(headers, request.receive, held)
            chat = await self.answerer.helpers(parse, body, self.settings)
            del body
            answer = _Answer(self, chat, request)
            events = await answer.begin()  # from here on the video's data is not held any more
        if chat.stream:
            return StreamingResponse(answer.sent(events), media_type="text/event-stream")
        return JSONResponse(await answer.whole(events))

    async def open_stream(self, request: Request) -> JSONResponse:
        """Open a stream, whose number is secret; a question names it as `stream:NUMBER` in the place of a video."""
        with self.room.reserved() as held:
            asked = parse_open(await read_body(request.scope["headers"], request.receive, held))
        return JSONResponse(self.answerer.streams.open(asked).as_dict(), HTTPStatus.CREATED)

    async def stream(self, number: str) -> dict[str, Any]:
        """Return a stream's counts."""
        return self.answerer.streams.find(number).as_dict()

    async def push(self, request: Request, number: str) -> dict[str, Any]:
        """Queue frames: a picture, several with their times, or a piece of video, and answer without waiting for them.

        In the address, `?time=SECONDS` is the time of a picture or of a piece's first frame (by default that of its
        arrival, or where the last piece ended); `?wait=true` waits until the frames are in the memory.
        """
        self.answerer.streams.find(number)
        headers = request.scope["headers"]
        kind = _content_type(headers)
        with self.room.reserved() as held:
            body = await read_body(headers, request.receive, held)
            answerer = self.answerer
            pushed = await answerer.helpers(parse_frames, body, kind, request.query_params, answerer.library)
            return await answerer.streams.push(number, pushed)

    async def end_stream(self, number: str) -> dict[str, Any]:
        """End a stream; return its last counts."""
        return await self.answerer.streams.end(number)

    async def models(self) -> dict[str, Any]:
        """Return the only model."""
        return {"object": "list", "data": [await self.model(self.settings.name)]}

    async def model(self, name: str) -> dict[str, Any]:
        """Return the only model by its name."""
        check_model(name, self.settings)
        longest = self.lm.backbone.max_length
        return {"id": name, "object": "model", "created": 0, "owned_by": "aviot", "max_model_len": longest}

    async def health(self) -> JSONResponse:
        """Return status 200 if requests are answered, 503 if the engine cannot, or the server is ending."""
        problem = "the server is ending" if self.ending else self.lm.engine.problem()
        state = {"status": problem or "ok", "model": self.settings.name, "version": aviot.__version__}
        return JSONResponse(state, HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics_page(self) -> Response:
        """Return the metrics."""
        return Response(self.metrics.page(), media_type=formats.KIND)

    async def explain(self, number: str) -> HTMLResponse:
        """Return the page of an answer; its number is secret, so that nothing else is needed to open it."""
        page = await self.explanations.page(number)
        return HTMLResponse(page.html, headers={"Content-Security-Policy": page.policy})

    async def documents(self) -> HTMLResponse:
        """Return the documentation of all routes; it loads nothing from a network."""
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(document_page(self.app.openapi()), headers={"Content-Security-Policy": policy})


class _Answer:
    """The answer to one request: its work, which ends when the client leaves, and its events."""

    def __init__(self, service: Service, chat: Chat, request: Request) -> None:
        self.service, self.chat = service, chat
        self.reply = Reply(chat, service.settings.name)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._work = asyncio.create_task(self._run())
        self._watch = asyncio.create_task(self._left(request))

    async def _run(self) -> None:
        try:
            await self.service.answerer.run(self.chat, self._events.put_nowait)
        finally:
            self._events.put_nowait(None)

    async def _left(self, request: Request) -> None:
        """End the work when the client leaves."""
        while (await request.receive())["type"] != "http.disconnect":
            pass
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
            raise _failure(error) from error

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
            yield _sent(self.reply.first())
            async for event in events:
                if isinstance(event, str):
                    yield _sent(self.reply.text(event))
            yield _sent(self.reply.last())
            if self.chat.include_usage:
                yield _sent(self.reply.counts())
            yield "data: [DONE]\n\n"
            requests.labels(int(HTTPStatus.OK)).inc()
        except Disconnected:
            requests.labels(LEFT).inc()
        except Refused as refused:
            requests.labels(int(refused.status)).inc()
            yield _sent(error_body(refused))
        except (asyncio.CancelledError, GeneratorExit):
            requests.labels(LEFT).inc()
            raise
        finally:
            with suppress(Exception):
                await events.aclose()  # type: ignore[attr-defined]


def _content_type(headers: Headers) -> str:
    return (header(headers, b"content-type") or "").partition(";")[0].strip().lower()


def _sent(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _failure(error: Exception) -> Refused:
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


def refusal_response(refused: Refused) -> JSONResponse:
    """Return the response of a refusal."""
    headers = dict(refused.headers)
    if refused.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(refused), int(refused.status), headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal_response(error)


async def _unexpected(request: Request, error: Exception) -> Response:
    return refusal_response(_failure(error))


async def _not_routed(request: Request, error: Exception) -> Response:
    status = HTTPStatus(getattr(error, "status_code", HTTPStatus.BAD_REQUEST))
    sentence = f"{request.method} {request.url.path[:200]}: {status.phrase.lower()}; /docs lists what there is"
    return refusal_response(Refused(status, sentence, code=status.name.lower()))
