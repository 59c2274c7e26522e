"""Socket reads with a total deadline and a total size limit."""

import io
import socket
import time
from http.client import HTTPException
from typing import Any


class TooManyBytes(HTTPException):
    """Raised when the peer sends more bytes than allowed."""


class DeadlineReader(io.RawIOBase):
    """A raw stream of the bytes that a socket receives, with the limits set by `allow`.

    Reading past them raises TimeoutError or TooManyBytes. A socket's own timeout restarts with every byte received, so
    that a slow peer could keep it waiting for ever.
    """

    def __init__(self, connection: socket.socket, *, seconds: float, size: int) -> None:
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)
        self.allow(seconds=seconds, size=size)

    def allow(self, *, seconds: float, size: int) -> None:
        """Reset the limits to `seconds` from now and `size` bytes."""
        self._end, self._left = time.monotonic() + seconds, size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read the available bytes into a buffer, waiting for the first."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the peer did not send its data in time")
        if self._left <= 0:
            raise TooManyBytes("the peer sent more bytes than allowed")
        self._connection.settimeout(seconds)
        received = self._raw.readinto(buffer)
        self._left -= received or 0
        return received

    def close(self) -> None:
        """Detach from the socket, which its owner closes."""
        self._raw.close()
        super().close()
