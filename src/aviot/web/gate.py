"""The gate in front of an application: who may send requests, and headers that keep browsers from misusing answers."""

import hmac
import logging
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aviot.web.access import Access, AccessError
from aviot.web.body import header
from aviot.web.refusal import Refused

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Refusal = Callable[[Refused], Application]

BEARER = "bearer "
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Keys:
    """The API key that requests must have as a bearer token, if there is one; paths in `open` need none."""

    key: str | None = field(default=None, repr=False)
    open: Collection[str] = ()

    def admit(self, path: str, authorization: str | None) -> None:
        """Raise Refused for a request without the key; the comparison takes constant time."""
        if self.key is None or any(path == one or (one.endswith("/") and path.startswith(one)) for one in self.open):
            return
        given = authorization or ""
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
    """An ASGI application that lets through what may reach another one; `refusal` makes the response to the rest."""

    app: Application
    access: Access
    keys: Keys
    refusal: Refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name.lower().encode(), value.encode()) for name, value in SECURITY.items()]
                message["headers"] = [*message.get("headers", ()), *(one for one in more if one[0] not in present)]
            await send(message)

        try:
            self._admit(scope)
        except Refused as refused:
            await self.refusal(refused)(scope, receive, secured)
            return
        await self.app(scope, receive, secured)

    def _admit(self, scope: Scope) -> None:
        headers = scope["headers"]
        try:
            hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
            origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
            self.access.check(hosts, origins)
        except AccessError as error:
            raise Refused(HTTPStatus.FORBIDDEN, str(error), code="wrong_host") from error
        self.keys.admit(scope["path"], header(headers, b"authorization"))
