"""Requests to the app: checked, and answered with JSON or a page, never with a traceback."""

import errno
import html
import io
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import torch

from aviot.explain.page import embedded, readable
from aviot.explain.videos import UnknownVideo
from aviot.utils.deadline import DeadlineReader
from aviot.utils.values import as_number
from aviot.web.access import AccessError

if TYPE_CHECKING:
    from aviot.explain.server import App

PLAIN_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
QUESTION_BYTES = 100_000
PIECE_BYTES = 2**20
HEAD_SECONDS = 20.0  # for a request's line and headers, and between two requests
HEAD_BYTES = 2**17  # a little more than http.server's longest line
BODY_SECONDS = 60.0  # plus one second per SLOWEST_BYTES
SLOWEST_BYTES = 50_000  # per second
DRAINED_SECONDS, DRAINED_BYTES = 2.0, 2**23  # read of a refused body, so that the client receives the refusal
TOKEN = "token"
NO_TOKEN = "this app needs a token; open the whole address that it printed in its terminal"

SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """Raised for a request that is refused, with the status and one sentence for the client."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Disconnected(Exception):
    """Raised for a request that broke off or came too slowly; it gets no answer."""


@dataclass(frozen=True)
class Reply:
    """The response to a request."""

    kind: str  # media type
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any, status: HTTPStatus = HTTPStatus.OK) -> "Reply":
        """Return a response with data as JSON."""
        return cls("application/json", embedded(data).encode(), status)


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: "App"
    protocol_version = default_request_version = "HTTP/1.1"
    server_version = "aviot"
    sys_version = ""

    def setup(self) -> None:
        """Limit the time and the size of everything that is read."""
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection, seconds=HEAD_SECONDS, size=HEAD_BYTES)
        self.rfile = io.BufferedReader(self._reader)
        self._is_unread = False

    def finish(self) -> None:
        """Read the rest of a refused body: if the connection closed first, the client might not receive the refusal."""
        if self._is_unread:
            try:
                self.connection.shutdown(socket.SHUT_WR)
                self._reader.allow(seconds=DRAINED_SECONDS, size=DRAINED_BYTES)
                while self.rfile.read1(PIECE_BYTES):
                    pass
            except Exception:  # the connection is closed anyway
                pass
        super().finish()

    def handle_one_request(self) -> None:
        """Answer the next request, which must arrive within the time limit."""
        self._reader.allow(seconds=HEAD_SECONDS, size=HEAD_BYTES)
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer with the page, or with the number of encoded videos."""
        self._answer({"/": self._page, "/status": self._status})

    def do_POST(self) -> None:
        """Accept a video, or answer questions about one."""
        self._answer({"/videos": self._video, "/ask": self._ask})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; errors are reported by `App.report_error`."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer malformed requests and other methods in the form of all refusals."""
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._deliver(self._refusal(Refused(status, f"this is not a request to the app: {status.phrase.lower()}")))

    def _answer(self, routes: dict[str, Callable[[], Reply]]) -> None:
        try:
            self._check_form()
            target = urlsplit(self.path)
            self.server.access.check(self.headers.get_all("Host", []), self.headers.get_all("Origin", []))
            reply = self._admit(target.query) or routes.get(target.path, self._not_found)()
        except Disconnected:
            self.close_connection = True
            return
        except Exception as error:
            reply = self._refusal(error)
        self._deliver(reply)

    def _check_form(self) -> None:
        """Refuse malformed and ambiguous requests."""
        if len(self.requestline.split()) != 3 or not self.path.startswith("/"):
            raise Refused(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1 with a path")
        if self.headers.get_payload() or len(self.headers.get_all("Content-Length", [])) > 1:
            raise Refused(HTTPStatus.BAD_REQUEST, "the request's headers are malformed")
        if "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must state its length and not be chunked")
        if self.command == "GET" and self.headers.get("Content-Length", "0").strip() != "0":
            raise Refused(HTTPStatus.BAD_REQUEST, "a GET request must have no body")

    def _admit(self, query: str) -> Reply | None:
        """Refuse a request without the token; redirect one that has it in its address to the address without it."""
        access = self.server.access
        if access.token is None:
            return None
        given = parse_qs(query).get(TOKEN, [""])[0] if self.command == "GET" else ""
        if given and access.admits(given):
            return self._without_token()
        if not access.admits_cookies(self.headers.get_all("Cookie", [])):
            raise Refused(HTTPStatus.FORBIDDEN, NO_TOKEN)
        return None

    def _without_token(self) -> Reply:
        """Redirect to the plain address, with the token in a cookie."""
        headers = {"Set-Cookie": self.server.access.set_cookie, "Location": "/"}
        return Reply("text/html", b"", HTTPStatus.SEE_OTHER, headers)

    def _refusal(self, error: Exception) -> Reply:
        """Return a refusal as JSON, or as a page if a browser asked for one."""
        status, sentence = self._explained(error)
        self.close_connection = self._is_unread = True  # the unread rest must not be parsed as another request
        accepted = self.headers.get("Accept", "") if getattr(self, "headers", None) is not None else ""
        if self.command == "GET" and "text/html" in accepted:
            return Reply("text/html", _sentence_page(readable(sentence)), status)
        return Reply.of({"error": readable(sentence)}, status)

    def _deliver(self, reply: Reply) -> None:
        try:
            self.connection.settimeout(BODY_SECONDS + len(reply.body) / SLOWEST_BYTES)
            self.send_response(reply.status)
            self.send_header("Content-Type", f"{reply.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(reply.body)))
            self.send_header("Content-Security-Policy", self.server.page.policy)
            for name, value in (SECURITY | reply.headers).items():
                self.send_header(name, value)
            if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "GET, POST")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _explained(self, error: Exception) -> tuple[HTTPStatus, str]:
        """Return the status and the sentence for an error; report an unexpected one to the terminal."""
        if isinstance(error, Refused):
            return error.status, str(error)
        if isinstance(error, AccessError):
            return HTTPStatus.FORBIDDEN, str(error)
        if isinstance(error, UnknownVideo):
            return HTTPStatus.NOT_FOUND, str(error)
        if isinstance(error, torch.OutOfMemoryError):
            return HTTPStatus.INSUFFICIENT_STORAGE, "the GPU's memory is full; try a shorter video or a higher ratio"
        if isinstance(error, ValueError):
            return HTTPStatus.UNPROCESSABLE_ENTITY, str(error)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return HTTPStatus.INSUFFICIENT_STORAGE, "the disk of the app's machine is full; make room and try again"
        self.server.report_error(error)
        return HTTPStatus.INTERNAL_SERVER_ERROR, "an unexpected error occurred; see the terminal that runs the app"

    def _page(self) -> Reply:
        return Reply("text/html", self.server.page.html)

    def _status(self) -> Reply:
        return Reply.of({"encoded": self.server.videos.encoded})

    def _not_found(self) -> Reply:
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here; the app's page is at /")

    def _video(self) -> Reply:
        self._require_type("application/octet-stream")
        length = self._length(self.server.limits.upload_bytes)
        name = readable(Path(unquote(self.headers.get("X-File-Name", ""))).name) or "the upload"
        suffix = Path(name).suffix.lower()
        with self.server.upload_folder() as folder:
            if folder is None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many videos at once; try again in a minute")
            # The content decides whether it is a video; the suffix helps FFmpeg to identify raw streams.
            path = folder / f"video{suffix if PLAIN_SUFFIX.fullmatch(suffix) else ''}"
            self._receive(path, length)
            try:
                return Reply.of(self.server.videos.add(path, name))
            except ValueError as error:
                sentence = str(error).replace(str(path), name)
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence) from error

    def _receive(self, path: Path, length: int) -> None:
        with path.open("wb") as file:
            for piece in self._pieces(length):
                file.write(piece)

    def _pieces(self, length: int) -> Iterator[bytes]:
        """Yield a body piece by piece; raise Disconnected below the slowest accepted rate."""
        self._reader.allow(seconds=BODY_SECONDS + length / SLOWEST_BYTES, size=length + HEAD_BYTES)
        while length:
            try:
                piece = self.rfile.read(min(length, PIECE_BYTES))
            except OSError as error:
                raise Disconnected from error
            if not piece:
                raise Disconnected
            yield piece
            length -= len(piece)

    def _ask(self) -> Reply:
        self._require_type("application/json")
        try:
            asked = json.loads(b"".join(self._pieces(self._length(QUESTION_BYTES))))
            video, name, questions, ratio = (asked[key] for key in ("video", "name", "questions", "ratio"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "expected JSON with video, name, questions and ratio") from error
        known = isinstance(questions, list) and all(isinstance(text, str) for text in (video, name, *questions))
        if not known or as_number(ratio) is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "questions must be a list of text, and ratio a number")
        return Reply.of(self.server.videos.ask(video, readable(name), questions, ratio))

    def _require_type(self, kind: str) -> None:
        if self.headers.get_content_type() != kind:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a body of type {kind}")

    def _length(self, most: int) -> int:
        given = self.headers.get("Content-Length", "").strip()
        if not (given.isascii() and given.isdecimal()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must state its length")
        if len(given) > 18 or int(given) > most:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"request too large: at most {most / 1e6:,.0f} MB")
        return int(given)


def _sentence_page(sentence: str) -> bytes:
    """Return a page with one sentence and a link to the app.

    A browser that came from another site sends the strict cookie with the token only after following that link.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>AVIOT</title><link rel="icon" href="data:,">'
        f"</head><body><main><h1>AVIOT</h1><p>{html.escape(sentence)}</p>"
        '<p><a href="/">The app</a></p></main></body></html>'
    ).encode()
