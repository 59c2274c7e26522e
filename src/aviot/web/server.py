"""A uvicorn server that ends connections which hold it up, and ends itself without dropping what it took."""

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from aviot.web.access import Bound
from aviot.web.protocol import Protocol

CONNECTIONS = 1000  # open at a time; requests on further ones are refused with status 503
HEAD_SECONDS = 20.0  # for a request's line and headers, and between two requests
STALLED_SECONDS = 120.0  # that a client may take to read what waits for it
SWEEP_TICKS = 10  # of a tenth of a second between two looks at the connections
CUT_SECONDS = 1.0  # in which requests that are cut off must end
LOGGER = "uvicorn.error"  # of the server
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listening(bound: Bound) -> socket.socket:
    """Return a socket that listens at an address, `::` to IPv4 too."""
    made = socket.socket(bound.family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(bound.address)
        made.listen(CONNECTIONS)
    except OSError:
        made.close()
        raise
    return made


class WebServer(uvicorn.Server):
    """A server of one ASGI application.

    The first signal of `ENDING` makes it refuse new connections and finish the requests that it has, for at most
    `ending_seconds`; the second one ends it at once. `before_end` is called at the first one.
    """

    def __init__(self, app: Any, *, ending_seconds: float, before_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,  # on h11, which bounds the size of headers; httptools does not
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # not a line for every malformed request
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=int(ending_seconds),
            )
        )
        self._before_end = before_end
        self._idle: dict[Any, float] = {}
        self._unread: dict[Any, float] = {}

    def run_at(self, listener: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        """Serve at a socket until a signal, or until `end` is called from another thread.

        `ready` is called once signals are handled.
        """
        self._ready = ready
        self.run([listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; what is cut off after `ending_seconds` is not reported as an error."""
        log = logging.getLogger(LOGGER)
        before = log.level
        log.setLevel(logging.CRITICAL)
        try:
            await super().shutdown(sockets)
            if cut := list(self.server_state.tasks):
                await asyncio.wait(cut, timeout=CUT_SECONDS)
        finally:
            log.setLevel(before)

    def end(self) -> None:
        """Begin to end; a second call ends at once."""
        if self.should_exit:
            self.force_exit = True
        else:
            self._before_end()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the block runs; one that is ignored stays ignored, and none is raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in ENDING}
        taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        for number in taken:
            signal.signal(number, lambda *_: self.end())
        try:
            yield
        finally:
            for number in taken:
                signal.signal(number, before[number])

    async def on_tick(self, counter: int) -> bool:
        """Look at the connections once a second."""
        if counter % SWEEP_TICKS == 0:
            self._sweep(time.monotonic())
        return await super().on_tick(counter)

    def _sweep(self, now: float) -> None:
        """Close connections without a request for too long, and those whose client reads too slowly or not at all."""
        open_now = set(self.server_state.connections)
        for known in (self._idle, self._unread):
            for connection in set(known) - open_now:
                del known[connection]
        for connection in open_now:
            cycle: Any = connection.cycle  # type: ignore[union-attr]
            transport: Any = connection.transport
            unread = transport.get_write_buffer_size() > 0
            over = (cycle is None or cycle.response_complete) and not unread
            if _since(self._idle, connection, over, now) > HEAD_SECONDS:
                transport.close()
            if _since(self._unread, connection, unread, now) > STALLED_SECONDS:
                transport.abort()


def _since(known: dict[Any, float], connection: Any, holds: bool, now: float) -> float:
    """Return for how many seconds something has held of a connection."""
    if not holds:
        known.pop(connection, None)
        return 0.0
    return now - known.setdefault(connection, now)
