"""One request to the app: checked, answered in JSON or with a page, never with a traceback."""

import base64
import errno
import hashlib
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

from aviot.explain.access import AccessError
from aviot.explain.page import embedded, explorer_script, filled, resource
from aviot.explain.report import model_line, readable
from aviot.explain.videos import UnknownVideo, Videos
from aviot.utils.deadline import DeadlineReader
from aviot.utils.values import as_number
from aviot.video import VIDEO_SUFFIXES

if TYPE_CHECKING:
    from aviot.explain.server import App

PLAIN_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
QUESTION_BYTES = 100_000
PIECE = 2**20
HEAD_SECONDS = 20.0  # for a request's line and headers, and between two requests
HEAD_BYTES = 2**17  # a little more than http.server's longest line
BODY_SECONDS = 60.0  # and a second for each SLOWEST bytes
SLOWEST = 50_000
DRAINED_SECONDS, DRAINED_BYTES = 2.0, 2**23  # of a refused body, so that the refusal arrives
TOKEN = "token"
NO_TOKEN = "this app asks for a token; open the whole address that it printed in its terminal"

# Nothing from elsewhere; of scripts the page's own alone, by its hash.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {script}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is answered with one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gone(Exception):
    """A request that broke off, or came too slowly; nobody waits for an answer."""


@dataclass(frozen=True)
class Reply:
    """What goes back."""

    kind: str
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any, status: HTTPStatus = HTTPStatus.OK) -> "Reply":
        """Return data as JSON."""
        return cls("application/json", embedded(data).encode(), status)


@dataclass(frozen=True)
class AppPage:
    """The app's page, whole: it asks its own server and nobody else."""

    html: bytes
    policy: str

    @classmethod
    def of(cls, upload_bytes: int, videos: Videos) -> "AppPage":
        """Fill the page in for a model and the largest upload."""
        settings = {
            "accept": ",".join(("video/*", *VIDEO_SUFFIXES)),
            "upload_bytes": upload_bytes,
            "ratio": videos.lm.backbone.default_budget.ratio,
            "model": model_line(videos.info),
        }
        script = explorer_script() + resource("app.js")
        parts = {
            "style": resource("explorer.css") + resource("app.css"),
            "script": script,
            "data": embedded(settings),
        }
        page = filled(resource("app.html"), parts)
        between = page[page.index("<script>") + len("<script>") : page.rindex("</script>")]
        digest = base64.b64encode(hashlib.sha256(between.encode()).digest()).decode()
        return cls(page.encode(), POLICY.format(script=f"'sha256-{digest}'"))


class Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: "App"
    protocol_version = default_request_version = "HTTP/1.1"
    server_version = "aviot"
    sys_version = ""

    def setup(self) -> None:
        """Read by a deadline and up to a size."""
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection, seconds=HEAD_SECONDS, size=HEAD_BYTES)
        self.rfile = io.BufferedReader(self._reader)
        self._is_unread = False

    def finish(self) -> None:
        """Read the rest of a body that was refused: closed before, the connection might lose the refusal."""
        if self._is_unread:
            try:
                self.connection.shutdown(socket.SHUT_WR)
                self._reader.allow(seconds=DRAINED_SECONDS, size=DRAINED_BYTES)
                while self.rfile.read1(PIECE):
                    pass
            except Exception:  # it is closed anyway
                pass
        super().finish()

    def handle_one_request(self) -> None:
        """Answer the next request, which must come in time."""
        self._reader.allow(seconds=HEAD_SECONDS, size=HEAD_BYTES)
        super().handle_one_request()

    def do_GET(self) -> None:
        """The page, or how often the vision tower was run."""
        self._answer({"/": self._page, "/status": self._status})

    def do_POST(self) -> None:
        """A video, or questions about one."""
        self._answer({"/videos": self._video, "/ask": self._ask})

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not written down; what goes wrong is."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request, or one of another kind, as everything else is answered."""
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._deliver(self._refusal(Refused(status, f"this is no request to the app: {status.phrase.lower()}")))

    def _answer(self, routes: dict[str, Callable[[], Reply]]) -> None:
        try:
            self._check_form()
            target = urlsplit(self.path)
            self.server.access.check(self.headers.get_all("Host", []), self.headers.get_all("Origin", []))
            reply = self._admit(target.query) or routes.get(target.path, self._nothing)()
        except Gone:
            self.close_connection = True
            return
        except Exception as error:
            reply = self._refusal(error)
        self._deliver(reply)

    def _check_form(self) -> None:
        """Refuse requests that could be read in two ways."""
        if len(self.requestline.split()) != 3 or not self.path.startswith("/"):
            raise Refused(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1 with a path")
        if self.headers.get_payload() or len(self.headers.get_all("Content-Length", [])) > 1:
            raise Refused(HTTPStatus.BAD_REQUEST, "the request's headers are malformed")
        if "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must say how long it is, and not come in chunks")
        if self.command == "GET" and self.headers.get("Content-Length", "0").strip() != "0":
            raise Refused(HTTPStatus.BAD_REQUEST, "a GET request must have no body")

    def _admit(self, query: str) -> Reply | None:
        """Refuse a request without the token; one that brings it in its address is sent on without it."""
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
        """Keep the token as a cookie, and leave the address that shows it."""
        kept = {"Set-Cookie": self.server.access.set_cookie, "Location": "/"}
        return Reply("text/html", b"", HTTPStatus.SEE_OTHER, kept)

    def _refusal(self, error: Exception) -> Reply:
        """Return a sentence as JSON, or as a page where a person asked."""
        status, sentence = self._told(error)
        self.close_connection = self._is_unread = True  # what was not read is not to be taken for another request
        accepted = self.headers.get("Accept", "") if getattr(self, "headers", None) is not None else ""
        if self.command == "GET" and "text/html" in accepted:
            return Reply("text/html", _sentence_page(readable(sentence)), status)
        return Reply.of({"error": readable(sentence)}, status)

    def _deliver(self, reply: Reply) -> None:
        try:
            self.connection.settimeout(BODY_SECONDS + len(reply.body) / SLOWEST)
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

    def _told(self, error: Exception) -> tuple[HTTPStatus, str]:
        """Return a sentence for whoever asked; a mistake of ours goes to the terminal too."""
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
        self.server.tell(error)
        return HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong here; the terminal that runs the app says more"

    def _page(self) -> Reply:
        return Reply("text/html", self.server.page.html)

    def _status(self) -> Reply:
        return Reply.of({"encoded": self.server.videos.encoded})

    def _nothing(self) -> Reply:
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here; the app's page is at /")

    def _video(self) -> Reply:
        self._require_type("application/octet-stream")
        length = self._length(self.server.limits.upload_bytes)
        name = readable(Path(unquote(self.headers.get("X-File-Name", ""))).name) or "the upload"
        suffix = Path(name).suffix.lower()
        with self.server.upload_folder() as folder:
            if folder is None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many videos come at once; try again in a minute")
            # The content decides whether it is a video; a suffix helps FFmpeg to tell raw streams apart.
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
        """Yield a body piece by piece; it must not come slower than a slow network."""
        self._reader.allow(seconds=BODY_SECONDS + length / SLOWEST, size=length + HEAD_BYTES)
        while length:
            try:
                piece = self.rfile.read(min(length, PIECE))
            except OSError as error:
                raise Gone from error
            if not piece:
                raise Gone
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
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must say how long it is")
        if len(given) > 18 or int(given) > most:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"that is too large: at most {most / 1e6:,.0f} MB")
        return int(given)


def _sentence_page(sentence: str) -> bytes:
    """Return a page that says one sentence.

    Its link is of this site: a browser that came here from another's sends the cookie with the token only then.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>AVIOT</title><link rel="icon" href="data:,">'
        f"</head><body><main><h1>AVIOT</h1><p>{html.escape(sentence)}</p>"
        '<p><a href="/">The app</a></p></main></body></html>'
    ).encode()
