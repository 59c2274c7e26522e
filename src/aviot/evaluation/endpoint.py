"""Client of an OpenAI-compatible endpoint: one chat completion per call, with retries."""

import email.utils
import io
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from aviot.utils.deadline import DeadlineReader
from aviot.utils.printing import one_line
from aviot.utils.values import require_positive, require_whole

MAX_REPLY = 2**20
"""Longest reply that is read, in bytes."""

MAX_RETRY_WAIT = 120.0
"""Longest wait between two attempts in seconds, also if Retry-After asks for more."""

MAX_HEADER_BYTES = 2**17
"""Bytes of status line and headers that are read in addition to the body."""

MAX_REASON = 400  # characters

_MAX_DOUBLINGS = 10  # of the wait between two attempts

_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_PERMANENT_STATUSES = frozenset({401, 403, 404})


class EndpointError(Exception):
    """A failed completion; `permanent` if every further request would fail as well."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class _TransientError(Exception):
    """A failure that a later attempt may not meet; `wait` is the server's Retry-After in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, which would send the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return None: the redirect is then handled as an HTTP error."""


class _TimedSocket:
    """A connected socket with a deadline for the whole reply; a plain timeout starts anew with each byte."""

    def __init__(self, connected: Any, seconds: float) -> None:
        self._connected, self._seconds = connected, seconds

    def makefile(self, *args: Any, **kwargs: Any) -> io.BufferedReader:
        """Return a reader of the reply that enforces deadline and size."""
        return io.BufferedReader(
            DeadlineReader(self._connected, seconds=self._seconds, size=MAX_REPLY + MAX_HEADER_BYTES)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)


class _TimedHTTP(HTTPConnection):
    def connect(self) -> None:
        """Connect, and apply the timeout as a deadline."""
        super().connect()
        self.sock: Any = _TimedSocket(self.sock, float(self.timeout or 0))


class _TimedHTTPS(HTTPSConnection):
    def connect(self) -> None:
        """Connect, and apply the timeout as a deadline."""
        super().connect()
        self.sock: Any = _TimedSocket(self.sock, float(self.timeout or 0))


class _HTTP(HTTPHandler):
    def http_open(self, request: Request) -> Any:
        """Open a plain connection."""
        return self.do_open(_TimedHTTP, request)


class _HTTPS(HTTPSHandler):
    def https_open(self, request: Request) -> Any:
        """Open an encrypted connection."""
        return self.do_open(_TimedHTTPS, request)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint and its retry policy. `key_variable` names the environment variable of the key, which is not stored.

    A transient failure is retried up to `attempts` requests in all, after `backoff` seconds that double each time, or
    after the server's Retry-After.
    """

    url: str
    model: str
    key_variable: str | None = None
    timeout: float = 60.0
    attempts: int = 6
    backoff: float = 1.0
    parallel: int = 8

    def __post_init__(self) -> None:
        require_positive(self, "timeout", "backoff")
        require_whole(self, "attempts", "parallel")
        parts = _split(self.url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"a judge must be an http or https address such as http://localhost:8000/v1, got {self.url!r}"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "a judge's address must hold no user, password or query; keys go in an environment variable"
            )
        if not self.model.strip():
            raise ValueError("a judge needs the name of its model, got an empty text")
        if self.key_variable is not None:
            key = os.environ.get(self.key_variable, "")
            if not key or not key.isascii() or not key.isprintable():
                raise ValueError(
                    f"the environment variable {self.key_variable} must hold the judge's key, one line of ASCII; "
                    + ("it holds something else" if key else "it is not set")
                )

    def describe(self) -> dict[str, Any]:
        """Return the manifest's entry, without the key."""
        return {"url": self.url, "model": self.model, "attempts": self.attempts, "timeout": self.timeout}

    def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        accept: Callable[[str], Any],
        sleep: Callable[[float], None] = time.sleep,
    ) -> Any:
        """Return `accept(reply)`; a ValueError from `accept` counts as a transient failure."""
        reason = ""
        for attempt in range(self.attempts):
            try:
                return accept(self._request(messages))
            except ValueError as error:
                reason, wait = f"malformed reply: {error}", None
            except _TransientError as error:
                reason, wait = str(error), error.wait
            if attempt + 1 < self.attempts:
                sleep(min(MAX_RETRY_WAIT, wait or self.backoff * 2 ** min(attempt, _MAX_DOUBLINGS)))
        raise EndpointError(f"{self._redact(reason)} (asked {self.attempts} times)")

    def _request(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the text of one completion."""
        body = {"model": self.model, "messages": list(messages), "temperature": 0, "max_tokens": 128}
        headers = {"Content-Type": "application/json", "User-Agent": "aviot"}
        if self.key_variable is not None:
            headers["Authorization"] = f"Bearer {os.environ[self.key_variable]}"
        address = self.url.rstrip("/")
        address += "" if address.endswith("/chat/completions") else "/chat/completions"
        request = Request(address, json.dumps(body).encode(), headers, method="POST")
        try:
            with build_opener(_NoRedirects, _HTTP, _HTTPS).open(request, timeout=self.timeout) as response:
                return _text(_read(response))
        except HTTPError as error:
            with error:
                self._raise_for_status(error)
        except (OSError, HTTPException) as error:  # no connection, a timeout, a truncated reply
            raise _TransientError(f"no reply: {getattr(error, 'reason', None) or error!r}") from error

    def _raise_for_status(self, error: HTTPError) -> NoReturn:
        """Raise the transient or final error of an unsuccessful status."""
        try:
            body = error.read(500).decode(errors="replace")
        except (OSError, HTTPException):
            body = ""
        reason = f"HTTP {error.code} {error.reason:.80}: {one_line(body)[:200]}".rstrip(": ")
        if error.code in _TRANSIENT_STATUSES:
            raise _TransientError(reason, _retry_after(error.headers.get("Retry-After"))) from error
        raise EndpointError(self._redact(reason), permanent=error.code in _PERMANENT_STATUSES) from error

    def _redact(self, reason: str) -> str:
        """Return a reason on one line of limited length; the key is masked in case the server repeats it."""
        key = os.environ.get(self.key_variable or "")
        return one_line(reason.replace(key, "***") if key else reason)[:MAX_REASON]


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is invalid."""
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 and url.isascii() and url.isprintable() and " " not in url else None
    except ValueError:
        return None


def _read(response: Any) -> bytes:
    """Return the whole body; raise ValueError if it is too long."""
    data = b""
    while chunk := response.read1(2**16):
        data += chunk
        if len(data) > MAX_REPLY:
            raise ValueError(f"it is longer than {MAX_REPLY:,} bytes")
    return data


def _text(data: bytes) -> str:
    try:
        content = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise ValueError(f"expected choices[0].message.content, got {data[:120]!r}") from None
    if not isinstance(content, str):
        raise ValueError(f"expected text as content, got {type(content).__name__}")
    return content


def _retry_after(value: str | None) -> float | None:
    """Return the seconds to wait of a Retry-After header (a number or a date); None if there are none."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):  # not a date, or out of range
        return None
