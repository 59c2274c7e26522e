"""The gate in front of an application: who may send requests, and headers that keep browsers from misusing answers."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from aviot.web.access import Access, AccessError
from aviot.web.body import header
from aviot.web.refusal import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Refusal = Callable[[Refused, Scope], Application]

BEARER = "bearer "
VERSIONS = ("1.0", "1.1")
MOST_HEADERS, MOST_HEAD_BYTES = 100, 2**16
DRAINED_SECONDS, DRAINED_BYTES = 2.0, 2**23  # read of a refused body, so that the client receives the refusal
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Admission(Protocol):
    """A rule that decides who may send requests."""

    def admit(self, scope: Scope) -> Application | None:
        """Raise Refused for a request that is not let through; return what answers it, or None for the application."""


@dataclass(frozen=True)
class Keys:
    """The API key that requests must have as a bearer token, if there is one; paths in `open` need none."""

    key: str | None = field(default=None, repr=False)
    open: Collection[str] = ()

    def admit(self, scope: Scope) -> None:
        """Raise Refused for a request without the key; the comparison takes constant time."""
        path = scope["path"]
        if self.key is None or any(path == one or (one.endswith("/") and path.startswith(one)) for one in self.open):
            return
        given = header(scope["headers"], b"authorization") or ""
        token = given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""
        if not hmac.compare_digest(token.encode(), self.key.encode()):
            what = "the API key is wrong" if token else "the request has no API key"
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                f"{what}; send the server's key in the header Authorization: Bearer KEY",
                code="invalid_api_key",
            )


@dataclass(frozen=True)
class Gate:
    """An ASGI application that lets through what may reach another one; `refusal` makes the response to the rest.

    `headers` stand in every response that does not have its own.
    """

    app: Application
    access: Access
    admission: Admission
    refusal: Refusal
    headers: Mapping[str, str] = field(default_factory=lambda: SECURITY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange = _Exchange(receive, send, self.headers, _announces_body(scope["headers"]))
        try:
            app = self._admit(scope) or self.app
        except Refused as refused:
            app = self.refusal(refused, scope)
        await app(scope, exchange.receive, exchange.send)

    def _admit(self, scope: Scope) -> Application | None:
        headers = scope["headers"]
        _check_form(scope)
        try:
            hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
            origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
            self.access.check(hosts, origins)
        except AccessError as error:
            raise Refused(HTTPStatus.FORBIDDEN, str(error), code="wrong_host") from error
        return self.admission.admit(scope)


def _check_form(scope: Scope) -> None:
    """Refuse requests that are too long, or that one program may read differently from another."""
    if scope["http_version"] not in VERSIONS:
        sentence = "expected a request of HTTP/1.1"
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, sentence, code="wrong_version")
    if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_HEAD_BYTES:
        raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG, "the request's path is too long", code="path_too_long")
    headers = scope["headers"]
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > MOST_HEAD_BYTES:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise Refused(status, "the request's headers are too large", code="headers_too_large")
    if not scope["raw_path"].startswith(b"/"):
        raise Refused(HTTPStatus.BAD_REQUEST, "expected a request with a path", code="wrong_form")
    if scope["method"] == "GET" and _announces_body(scope["headers"]):
        raise Refused(HTTPStatus.BAD_REQUEST, "a GET request must have no body", code="wrong_form")


def _announces_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0") for name, value in headers
    )


@dataclass
class _Exchange:
    """The messages of one request and its response, with headers added.

    If a refusal is sent before the request's body has arrived, a part of the rest is read before the connection ends: a
    client that is still sending would not receive the refusal otherwise.
    """

    inner_receive: Receive
    inner_send: Send
    headers: Mapping[str, str]
    is_unread: bool
    is_refused: bool = False

    async def receive(self) -> Message:
        """Return the next message of the request."""
        message = await self.inner_receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.is_unread = False
        return message

    async def send(self, message: Message) -> None:
        """Send the next message of the response."""
        if message["type"] == "http.response.start":
            self.is_refused = self.is_unread and message["status"] >= HTTPStatus.BAD_REQUEST
            given = list(message.get("headers", ()))
            present = {name.lower() for name, _ in given}
            more = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            if self.is_refused:
                more.append((b"connection", b"close"))
            message["headers"] = [*given, *(one for one in more if one[0] not in present)]
        elif self.is_refused and self.is_unread and not message.get("more_body", False):
            await self.inner_send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body"}
        await self.inner_send(message)

    async def _drain(self) -> None:
        left = DRAINED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_SECONDS):
                while self.is_unread and left > 0:
                    left -= len((await self.receive()).get("body", b""))
