"""Bodies of requests: bounded in size, in time, and in the memory of all of them together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aviot.web.refusal import Disconnected, Refused

BODY_SECONDS = 60.0  # plus one second per SLOWEST_BYTES
SLOWEST_BYTES = 50_000  # per second
RETRY_SECONDS = 5

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = list[tuple[bytes, bytes]]


def header(headers: Headers, name: bytes) -> str | None:
    """Return a header's value; refuse a request that has it twice."""
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the request has {name.decode()} {len(found)} times; send it once")
    return found[0].decode("latin-1").strip() if found else None


@dataclass
class BodyRoom:
    """Room for the bodies of requests: of one, and of all that are read or used at a time, in bytes.

    Bytes count once they have arrived, so that clients that only announce large bodies take nothing from others.
    """

    each: int
    total: int
    used: int = 0

    def check(self, size: int) -> None:
        """Raise Refused for more bytes than one request may have."""
        if size > self.each:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the request has more than {self.each / 1e6:,.0f} MB, the most that this server takes; send a shorter "
                "or smaller video, or put it where the server can read it",
                code="request_too_large",
            )

    @contextmanager
    def reserved(self) -> Iterator["Reservation"]:
        """Yield a reservation that grows with a body and is given back at the end of the block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.used -= reservation.size


@dataclass
class Reservation:
    """A part of the room that one request holds."""

    room: BodyRoom
    size: int = 0

    def grow(self, size: int) -> None:
        """Hold at least this many bytes, or raise Refused."""
        room = self.room
        room.check(size)
        more = size - self.size
        if more > 0 and room.used + more > room.total:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many large requests at once; send it again in a few seconds",
                code="uploads_full",
                retry=RETRY_SECONDS,
            )
        if more > 0:
            room.used += more
            self.size = size


async def read_body(headers: Headers, receive: Receive, held: Reservation) -> bytes:
    """Return a request's body; raise Refused if it is too large or too slow, Disconnected if the client leaves."""
    given = header(headers, b"content-length")
    if given is not None:
        held.room.check(int(given))  # the HTTP parser has checked that it is a number
    expected = held.room.each if given is None else int(given)
    try:
        async with asyncio.timeout(BODY_SECONDS + expected / SLOWEST_BYTES):
            return await _received(receive, held)
    except TimeoutError:
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the request's body came too slowly; send it again") from None


async def _received(receive: Receive, held: Reservation) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        held.grow(len(body))
        if not message.get("more_body", False):
            return bytes(body)
