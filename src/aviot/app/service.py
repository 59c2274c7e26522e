"""The app's routes: the server's own, the page, uploads, and sample videos."""

import asyncio
import html
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from aviot.app.page import AppPage
from aviot.app.uploads import UploadLibrary, Uploads
from aviot.bundled import FOREIGN
from aviot.explain.page import described_model, readable
from aviot.explain.study import ModelInfo
from aviot.scenes import save, scene_with_questions, stored_numbers
from aviot.serve.app import Service, content_type
from aviot.serve.media import Media
from aviot.serve.sending import failure
from aviot.serve.settings import Settings
from aviot.serve.videos import video_key
from aviot.session import VideoLM
from aviot.video import stop_reading
from aviot.web.gate import Scope
from aviot.web.leaving import while_connected
from aviot.web.refusal import Refused

VIDEO_TYPE = "application/octet-stream"
LINES = "application/x-ndjson"
"""The type that a browser accepts to be told of progress: a JSON object per line."""

TICK = 0.2  # seconds between two messages of progress

Message = dict[str, Any]


class AppService(Service):
    """The application: one model, and a page for people. Make it on the event loop's thread."""

    def __init__(self, lm: VideoLM, settings: Settings, upload_bytes: int) -> None:
        self.info = ModelInfo.of(lm.backbone)
        self.page = AppPage.of(
            {
                "upload_bytes": upload_bytes,
                "ratio": lm.backbone.default_budget.ratio,
                "method": lm.backbone.method(settings.method).name,  # the stand-in's if that one runs
                "notice": FOREIGN if self.info.bundled else None,  # of what a camera sees
                "model": described_model(self.info) | {"id": settings.name},
            }
        )
        super().__init__(lm, settings, UploadLibrary(settings))
        self.uploads = Uploads(upload_bytes, self.answerer.helpers)

    def close(self) -> None:
        """End everything, and delete all uploads."""
        stop_reading()
        super().close()
        self.uploads.close()

    def add_routes(self) -> None:
        """Add the page's routes to those of the server."""
        super().add_routes()
        self.app.get("/", include_in_schema=False)(self.home)
        self.app.get("/status", summary="Tell how many videos were encoded")(self.status)
        self.app.post("/videos", summary="Upload a video")(self.upload)
        self.app.get("/samples/{number}", summary="Return a sample video")(self.sample)

    def refusal(self, refused: Refused, scope: Scope) -> Response:
        """Return the response of a refusal: a page if a browser asked for one, else JSON."""
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        if scope["method"] == "GET" and b"text/html" in accepted:
            return HTMLResponse(sentence_page(readable(refused.sentence)), int(refused.status), dict(refused.headers))
        return super().refusal(refused, scope)

    async def home(self) -> HTMLResponse:
        """Return the page."""
        return HTMLResponse(self.page.html)

    async def status(self) -> Message:
        """Return the number of videos that were encoded."""
        return {"encoded": self.answerer.videos.encoded}

    async def upload(self, request: Request) -> Response:
        """Receive a video, read and encode it, unless it is kept already, and describe it.

        Asked about as `upload:` with the hash that is returned as `video`. A client that accepts `application/x-ndjson`
        is told of the progress. A client that leaves ends the work.
        """
        if content_type(request.scope["headers"]) != VIDEO_TYPE:
            sentence = f"expected a body of type {VIDEO_TYPE}"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, code="wrong_type")
        events = self._opening(request)
        first = await anext(events)  # from here on the body has arrived
        if LINES in request.headers.get("accept", ""):
            return StreamingResponse(_lines(first, events), media_type=LINES)
        return JSONResponse(await while_connected(request.receive, _last(events)))

    async def sample(self, number: int) -> Response:
        """Return a bundled scene as a video file."""
        if number not in stored_numbers():
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no sample {number}", code="not_found")
        return Response(await self.answerer.helpers(_drawn, number), media_type="video/mp4")

    async def _opening(self, request: Request) -> AsyncGenerator[Message]:
        """Yield progress messages and then the description of an uploaded video."""
        async with self.uploads.received(request.scope["headers"], request.receive) as media:
            work = asyncio.create_task(self._described(media))
            try:
                while not work.done():
                    yield self._progress(media)
                    await asyncio.wait((work,), timeout=TICK)
                yield work.result()
            finally:
                work.cancel()

    async def _described(self, media: Media) -> Message:
        async with self.answerer.videos.opened(media, {}) as opened:
            video = opened.session.video
            return {
                "video": media.digest,
                "name": media.name,
                "frames": len(video),
                "duration": video.duration,
                "notice": self.info.notice(video),
            }

    def _progress(self, media: Media) -> Message:
        found = self.answerer.videos.progress.get(video_key(media, {}))
        if found is None:
            return {"stage": "wait", "share": 0.0, "left": None}
        return {"stage": found.stage, "share": round(found.share, 4), "left": found.seconds_left}


async def _last(events: AsyncGenerator[Message]) -> Message:
    async with aclosing(events):
        messages = [message async for message in events]
    return messages[-1]


async def _lines(first: Message, events: AsyncGenerator[Message]) -> AsyncIterator[str]:
    """Yield messages as lines; an error is the last one, with the status that it would have had."""
    async with aclosing(events):
        try:
            yield json.dumps(first) + "\n"
            async for message in events:
                yield json.dumps(message) + "\n"
        except Exception as error:
            refused = error if isinstance(error, Refused) else failure(error)
            yield json.dumps({"error": readable(refused.sentence), "status": int(refused.status)}) + "\n"


@cache
def _drawn(number: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="aviot-app-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "scene.mp4"
        save(scene_with_questions(number).scene, path)
        return path.read_bytes()


def sentence_page(sentence: str) -> str:
    """Return a page with one sentence and a link to the app.

    A browser that came from another site sends the strict cookie with the token only after following that link.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>AVIOT</title><link rel="icon" href="data:,">'
        f"</head><body><main><h1>AVIOT</h1><p>{html.escape(sentence)}</p>"
        '<p><a href="/">The app</a></p></main></body></html>'
    )
