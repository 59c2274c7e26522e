"""The server's routes."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

import aviot
from aviot.request import MOST_QUESTIONS
from aviot.serve import metrics as formats
from aviot.serve.answering import Answerer
from aviot.serve.chat import ChatRequest, check_model, parse
from aviot.serve.documents import document_page
from aviot.serve.explanations import Explanations
from aviot.serve.media import Library
from aviot.serve.metrics import Metrics
from aviot.serve.replies import error_body
from aviot.serve.sending import LEFT, SentAnswer, failure
from aviot.serve.settings import Settings
from aviot.serve.stream_requests import JSON_TYPE, PICTURES, FramesRequest, StreamRequest, parse_frames, parse_open
from aviot.session import VideoLM
from aviot.web.body import BodyRoom, Headers, header, read_body
from aviot.web.gate import Scope
from aviot.web.leaving import while_connected
from aviot.web.refusal import Disconnected, Refused

OPEN = ("/health", "/docs", "/openapi.json", "/explain/")
"""Paths that need no API key: nothing of anybody's is there, or its address cannot be guessed."""


Also = Annotated[tuple[str, ...], Query(max_length=MOST_QUESTIONS - 1)]
Name = Annotated[str, Query(max_length=300)]


def _body(model: type[BaseModel], *more: str, required: bool = True) -> dict[str, Any]:
    """Return the description of a request's body: JSON of a model, or data of other types."""
    schema = {"schema": model.model_json_schema()}
    data = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"content": {JSON_TYPE: schema} | dict.fromkeys(more, data), "required": required}}


BODY, STREAM_BODY = _body(ChatRequest), _body(StreamRequest, required=False)
FRAMES_BODY = _body(FramesRequest, *PICTURES, "video/*")


class Service:
    """The application: one model behind the OpenAI protocol. Make it on the event loop's thread."""

    def __init__(self, lm: VideoLM, settings: Settings, library: Library | None = None) -> None:
        self.lm, self.settings, self.metrics = lm, settings, Metrics()
        self.room = BodyRoom(settings.limits.upload_bytes, settings.limits.uploads_bytes)
        self.answerer = Answerer(lm, settings, self.metrics, self.room, library)
        self.explanations = Explanations(self.answerer, settings.explanations)
        self.metrics.gauge("upload_bytes", "Bytes of requests that are held.", lambda: self.room.used)
        self.ending = False
        self.app = FastAPI(title="AVIOT", version=aviot.__version__, docs_url=None, redoc_url=None)
        self.add_routes()

    def close(self) -> None:
        """Free the threads and the engine."""
        self.explanations.close()
        self.answerer.close()
        self.lm.engine.close()

    def refusal(self, refused: Refused, scope: Scope) -> Response:
        """Return the response of a refusal."""
        return refused_response(refused, scope)

    def add_routes(self) -> None:
        """Add the routes to the application."""
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
        app.get("/explain/{number}/data", summary="Return the data of that page")(self.explain_data)
        app.get("/docs", include_in_schema=False)(self.documents)
        app.add_exception_handler(Refused, self._refused)
        app.add_exception_handler(Disconnected, _ended)
        app.add_exception_handler(HTTPException, self._not_routed)
        app.add_exception_handler(RequestValidationError, self._not_routed)
        app.add_exception_handler(Exception, self._refused)

    async def chat(self, request: Request) -> Response:
        """Answer one question about one video, at once or as a stream of server-sent events."""
        try:
            reply = await self._chat(request)
        except Disconnected:
            self.metrics.requests.labels(LEFT).inc()
            raise
        except Refused as refused:
            self.metrics.requests.labels(int(refused.status)).inc()
            raise
        return reply

    async def _chat(self, request: Request) -> Response:
        headers = request.scope["headers"]
        kind = content_type(headers)
        if kind != JSON_TYPE:
            sentence = f"expected a body of type {JSON_TYPE}, got {kind[:80] or 'none'}"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, code="wrong_type")
        with self.room.reserved() as held:
            body = await read_body(headers, request.receive, held)
            chat = await self.answerer.helpers(parse, body, self.settings)
            del body
            answer = SentAnswer(self, chat, request)
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
        kind = content_type(headers)
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

    async def explain(self, request: Request, number: str, also: Also = (), name: Name = "") -> HTMLResponse:
        """Return the page of an answer; its number is secret, so that nothing else is needed to open it.

        `also` has the numbers of other answers about the same video, to compare with, and `name` a title.
        """
        page = await while_connected(request.receive, self.explanations.page(number, also, name))
        return HTMLResponse(page.html, headers={"Content-Security-Policy": page.policy})

    async def explain_data(self, request: Request, number: str, also: Also = (), name: Name = "") -> Response:
        """Return the data that an answer's page shows."""
        data = await while_connected(request.receive, self.explanations.report(number, also, name))
        return Response(data, media_type=JSON_TYPE)

    async def documents(self) -> HTMLResponse:
        """Return the documentation of all routes; it loads nothing from a network."""
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(document_page(self.app.openapi()), headers={"Content-Security-Policy": policy})

    async def _refused(self, request: Request, error: Exception) -> Response:
        return self.refusal(error if isinstance(error, Refused) else failure(error), request.scope)

    async def _not_routed(self, request: Request, error: Exception) -> Response:
        status = HTTPStatus(getattr(error, "status_code", HTTPStatus.BAD_REQUEST))
        sentence = f"{request.method} {request.url.path[:200]}: {status.phrase.lower()}; /docs lists what there is"
        return self.refusal(Refused(status, sentence, code=status.name.lower()), request.scope)


def content_type(headers: Headers) -> str:
    """Return a request's media type without parameters; empty if it has none."""
    return (header(headers, b"content-type") or "").partition(";")[0].strip().lower()


def refused_response(refused: Refused, scope: Scope) -> Response:
    """Return the response of a refusal as JSON."""
    headers = dict(refused.headers)
    if refused.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(refused), int(refused.status), headers)


async def _ended(request: Request, error: Exception) -> Response:
    """Return what nobody reads."""
    return Response(status_code=int(HTTPStatus.BAD_REQUEST))
