"""An OpenAI-compatible endpoint: one chat completion, asked for until it comes or cannot be had."""

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
"""Bytes of the longest reply that is read."""

LONGEST_WAIT = 120.0
"""Seconds that a server's Retry-After is obeyed at most."""

HEAD_BYTES = 2**17
"""Bytes of a reply's status and headers that are read, beside what it says."""

SAID = 400  # characters of a reason

_DOUBLED = 10  # times that the wait between two requests is doubled at most

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_HOPELESS = frozenset({401, 403, 404})


class EndpointError(Exception):
    """A completion that could not be had, and why; `hopeless` if no other will come either."""

    def __init__(self, reason: str, *, hopeless: bool = False) -> None:
        super().__init__(reason)
        self.hopeless = hopeless


class _Passing(Exception):
    """A failure that may pass, and how long the server asks to wait."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Follow none; the reply is then an error like any other."""


class _TimedSocket:
    """A connected socket whose reply must be there, whole, in so many seconds: a byte now and then is not enough."""

    def __init__(self, connected: Any, seconds: float) -> None:
        self._connected, self._seconds = connected, seconds

    def makefile(self, *args: Any, **kwargs: Any) -> io.BufferedReader:
        """Return the reply's bytes."""
        return io.BufferedReader(DeadlineReader(self._connected, seconds=self._seconds, size=MAX_REPLY + HEAD_BYTES))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)


class _TimedHTTP(HTTPConnection):
    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.sock: Any = _TimedSocket(self.sock, float(self.timeout or 0))


class _TimedHTTPS(HTTPSConnection):
    def connect(self) -> None:
        """Connect."""
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
    """Where a model is asked. `key_variable` names the environment variable with the key, which is kept nowhere.

    A request that fails in a way that may pass is sent again, `attempts` times in all, after `backoff` seconds and
    twice as long each time, or as long as the server says.
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
            raise ValueError("a judge needs the name of its model; say --judge-model")
        if self.key_variable is not None:
            key = os.environ.get(self.key_variable, "")
            if not key or not key.isascii() or not key.isprintable():
                raise ValueError(
                    f"the environment variable {self.key_variable} must hold the judge's key, one line of ASCII; "
                    + ("it holds something else" if key else "it is not set")
                )

    def describe(self) -> dict[str, Any]:
        """What a manifest says of it; never the key."""
        return {"url": self.url, "model": self.model, "attempts": self.attempts, "timeout": self.timeout}

    def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        accept: Callable[[str], Any],
        sleep: Callable[[float], None] = time.sleep,
    ) -> Any:
        """What `accept` makes of the reply's text; it raises ValueError for one that is to be asked for again."""
        reason = ""
        for attempt in range(self.attempts):
            try:
                return accept(self._ask(messages))
            except ValueError as error:
                reason, wait = f"malformed reply: {error}", None
            except _Passing as error:
                reason, wait = str(error), error.wait
            if attempt + 1 < self.attempts:
                sleep(min(LONGEST_WAIT, wait or self.backoff * 2 ** min(attempt, _DOUBLED)))
        raise EndpointError(f"{self._told(reason)} (asked {self.attempts} times)")

    def _ask(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of one completion."""
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
                self._refused(error)
        except (OSError, HTTPException) as error:  # no connection, a time-out, a reply that breaks off
            raise _Passing(f"no reply: {getattr(error, 'reason', None) or error!r}") from error

    def _refused(self, error: HTTPError) -> NoReturn:
        """Sort a status other than success: it may pass, or it will not."""
        try:
            said = error.read(500).decode(errors="replace")
        except (OSError, HTTPException):
            said = ""
        reason = f"HTTP {error.code} {error.reason:.80}: {one_line(said)[:200]}".rstrip(": ")
        if error.code in _PASSING:
            raise _Passing(reason, _retry_after(error.headers.get("Retry-After"))) from error
        raise EndpointError(self._told(reason), hopeless=error.code in _HOPELESS) from error

    def _told(self, reason: str) -> str:
        """A server's words, some of them, on a line, without the key, should it repeat it."""
        key = os.environ.get(self.key_variable or "")
        return one_line(reason.replace(key, "***") if key else reason)[:SAID]


def _split(url: str) -> SplitResult | None:
    """The parts of an address; None for what cannot be one."""
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 and url.isascii() and url.isprintable() and " " not in url else None
    except ValueError:
        return None


def _read(response: Any) -> bytes:
    """The whole reply."""
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
    """Seconds to wait: the header has a number of them or a date; what is past or no number says nothing."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):  # no date, or one of no calendar
        return None
