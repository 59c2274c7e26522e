"""The app's server: a page, a way in for a video, a way in for questions. Standard library, loopback unless told."""

import ipaddress
import json
import re
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import torch

from aviot.explain.page import embedded, explorer_script, filled, resource
from aviot.explain.report import model_line, readable
from aviot.explain.videos import UnknownVideo, Videos
from aviot.values import as_number
from aviot.video import VIDEO_SUFFIXES

PLAIN_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
QUESTION_BYTES = 100_000
PIECE = 2**20
PATIENCE = 60  # seconds without a byte
# Nothing from elsewhere. Tools that drive a browser evaluate text, which opens no door that inline scripts had not.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Refused(Exception):
    """A request that is answered with one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """What the app accepts."""

    upload_bytes: int

    def __post_init__(self) -> None:
        if self.upload_bytes < 1:
            raise ValueError("--max-upload must be at least 1 MB")


class App(ThreadingHTTPServer):
    """Serves one page to browsers of this machine, or of a network where somebody asked for that."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], videos: Videos, limits: Limits, say: Callable[[str], None]) -> None:
        self.videos, self.limits, self.say = videos, limits, say
        self.page = app_page(limits, videos)
        super().__init__(address, Handler)

    @property
    def url(self) -> str:
        """Where to look."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{host}:{port}/"


def app_page(limits: Limits, videos: Videos) -> str:
    """The app's page, whole: it asks its own server and nobody else."""
    settings = {
        "accept": ",".join(("video/*", *VIDEO_SUFFIXES)),
        "upload_bytes": limits.upload_bytes,
        "ratio": videos.model.config.ratio,
        "model": model_line(videos.info),
    }
    parts = {
        "style": resource("explorer.css") + resource("app.css"),
        "script": explorer_script() + resource("app.js"),
        "data": embedded(settings),
    }
    return filled(resource("app.html"), parts)


class Handler(BaseHTTPRequestHandler):
    """One request: checked, answered in JSON or with the page, never with a traceback."""

    server: App
    protocol_version = "HTTP/1.1"
    server_version = "aviot"
    sys_version = ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        """The page, or how often the vision tower was run."""
        self._answer({"/": self._page, "/status": self._status}.get(urlsplit(self.path).path, self._nothing))

    def do_POST(self) -> None:
        """A video, or questions about one."""
        self._answer({"/videos": self._video, "/ask": self._ask}.get(urlsplit(self.path).path, self._nothing))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not written down; what goes wrong is."""

    def _answer(self, make: Callable[[], tuple[str, bytes]]) -> None:
        status = HTTPStatus.OK
        try:
            self._check_origin()
            kind, body = make()
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            return
        except Exception as error:
            status, sentence = self._told(error)
            kind, body = "application/json", json.dumps({"error": readable(sentence)}).encode()
            self.close_connection = True  # what was not read of the request is not to be taken for another
        try:
            self._send(status, kind, body)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _told(self, error: Exception) -> tuple[HTTPStatus, str]:
        """A sentence for whoever asked; a mistake of ours goes to the terminal too."""
        if isinstance(error, Refused):
            return error.status, str(error)
        if isinstance(error, UnknownVideo):
            return HTTPStatus.NOT_FOUND, str(error)
        if isinstance(error, torch.OutOfMemoryError):
            return HTTPStatus.INSUFFICIENT_STORAGE, "the GPU's memory is full; try a shorter video or a higher ratio"
        if isinstance(error, ValueError):
            return HTTPStatus.UNPROCESSABLE_ENTITY, str(error)
        self.server.say("".join(traceback.format_exception(error)))
        return HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong here; the terminal that runs the app says more"

    def _check_origin(self) -> None:
        """Only the app's own page may ask: no other site's, and none that got here under a name of its own."""
        host = self.headers.get("Host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if _is_loopback(str(self.server.server_address[0])) and not _is_loopback(name):
            raise Refused(HTTPStatus.FORBIDDEN, "this app answers only to the address it is served at")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Refused(HTTPStatus.FORBIDDEN, "only the app's own page may ask")

    def _page(self) -> tuple[str, bytes]:
        return "text/html", self.server.page.encode()

    def _status(self) -> tuple[str, bytes]:
        return "application/json", json.dumps({"encoded": self.server.videos.encoded}).encode()

    def _nothing(self) -> tuple[str, bytes]:
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here; the app's page is at /")

    def _video(self) -> tuple[str, bytes]:
        self._require_type("application/octet-stream")
        name = readable(Path(unquote(self.headers.get("X-File-Name", ""))).name) or "the upload"
        suffix = Path(name).suffix.lower()
        with tempfile.TemporaryDirectory(prefix="aviot-") as folder:
            # The content decides whether it is a video; a suffix helps FFmpeg to tell raw streams apart.
            path = Path(folder) / f"video{suffix if PLAIN_SUFFIX.fullmatch(suffix) else ''}"
            self._receive(path)
            try:
                said = self.server.videos.add(path, name)
            except ValueError as error:
                sentence = str(error).replace(str(path), name)
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence) from error
        return "application/json", json.dumps(said).encode()

    def _receive(self, path: Path) -> None:
        left = self._length(self.server.limits.upload_bytes)
        with path.open("wb") as file:
            while left:
                piece = self.rfile.read(min(left, PIECE))
                if not piece:
                    raise ConnectionError("the upload ended early")
                file.write(piece)
                left -= len(piece)

    def _ask(self) -> tuple[str, bytes]:
        self._require_type("application/json")
        try:
            asked = json.loads(self.rfile.read(self._length(QUESTION_BYTES)))
            video, name, questions, ratio = (asked[key] for key in ("video", "name", "questions", "ratio"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "expected JSON with video, name, questions and ratio") from error
        known = isinstance(questions, list) and all(isinstance(text, str) for text in (video, name, *questions))
        if not known or as_number(ratio) is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "questions must be a list of text, and ratio a number")
        report = self.server.videos.ask(video, readable(name), questions, ratio)
        return "application/json", embedded(report).encode()

    def _require_type(self, kind: str) -> None:
        if self.headers.get_content_type() != kind:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected a body of type {kind}")

    def _length(self, most: int) -> int:
        given = self.headers.get("Content-Length", "")
        if not given.isdecimal():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must say how long it is")
        if len(given) > 18 or int(given) > most:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"that is too large: at most {most / 1e6:,.0f} MB")
        return int(given)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
