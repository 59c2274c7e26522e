"""Reading from a socket by a moment and up to a size, however slowly and endlessly the other side sends."""

import io
import socket
import time
from http.client import HTTPException
from typing import Any


class TooManyBytes(HTTPException):
    """More was sent than is read at a time."""


class DeadlineReader(io.RawIOBase):
    """The bytes that a socket receives; reading them ends with TimeoutError or TooManyBytes at what `allow` allows.

    A timeout of a socket is one of silence: a byte now and then keeps it waiting for ever.
    """

    def __init__(self, connection: socket.socket, *, seconds: float, size: int) -> None:
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)
        self.allow(seconds=seconds, size=size)

    def allow(self, *, seconds: float, size: int) -> None:
        """Begin again: so many seconds from now, and so many bytes."""
        self._end, self._left = time.monotonic() + seconds, size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Receive what is there, or wait for it."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the other side is too slow")
        if self._left <= 0:
            raise TooManyBytes("the other side sends too much")
        self._connection.settimeout(seconds)
        received = self._raw.readinto(buffer)
        self._left -= received or 0
        return received

    def close(self) -> None:
        """Let go of the socket, which its owner closes."""
        self._raw.close()
        super().close()
