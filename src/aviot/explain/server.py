"""The app's HTTP server, on the standard library: bounded connections, and uploads that are deleted when it ends."""

import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from aviot.explain.handler import Handler
from aviot.explain.page import AppPage
from aviot.explain.videos import Videos
from aviot.web.access import Access, resolve

CONNECTIONS = 128  # threads; further connections wait in the backlog
UPLOADS = 4  # received at a time, each up to the limit on disk
UPLOAD_WAIT = 60.0  # seconds that an upload waits for another to end
POLL = 0.2  # seconds between checks for a shutdown
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Limits:
    """Limits on requests to the app."""

    upload_bytes: int

    def __post_init__(self) -> None:
        if self.upload_bytes < 1:
            raise ValueError(f"upload_bytes must be at least 1, got {self.upload_bytes}")


class App(ThreadingHTTPServer):
    """A server of one page, for browsers on this machine or, at another bind address, on a network.

    `say` is called with unexpected errors; `names` are further host names that the app answers to.
    """

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        videos: Videos,
        limits: Limits,
        say: Callable[[str], None],
        names: Iterable[str] = (),
    ) -> None:
        bound = resolve(*address)
        self.address_family = bound.family
        self.videos, self.limits, self.say = videos, limits, say
        self.page = AppPage.of(limits.upload_bytes, videos)
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self._uploading = threading.BoundedSemaphore(UPLOADS)
        self._uploads = tempfile.TemporaryDirectory(prefix="aviot-app-", ignore_cleanup_errors=True)
        self._is_closed = False
        super().__init__(bound.address, Handler)
        try:
            self.access = Access.of(str(self.server_address[0]), self.server_address[1], names)
        except ValueError:
            self.server_close()
            raise

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        return self.access.url

    def server_bind(self) -> None:
        """Bind, `::` to IPv4 too, without a name lookup on the network."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def get_request(self) -> Any:
        """Accept a connection once fewer than the maximum are open."""
        if not self._room.acquire(timeout=POLL):
            raise OSError("too many connections are open")
        try:
            return super().get_request()
        except BaseException:
            self._room.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, so that another can be accepted."""
        try:
            super().shutdown_request(request)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report unexpected errors; a closed connection is not one."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            self.report_error(error)

    def report_error(self, error: BaseException) -> None:
        """Report an error with its traceback; not while the server ends and deletes uploads that are in use."""
        if not self._is_closed:
            self.say("".join(traceback.format_exception(error)))

    @contextmanager
    def upload_folder(self) -> Iterator[Path | None]:
        """Yield a temporary directory for one upload, or None if too many uploads are in progress."""
        if self._is_closed or not self._uploading.acquire(timeout=UPLOAD_WAIT):
            yield None
            return
        try:
            with tempfile.TemporaryDirectory(dir=self._uploads.name, ignore_cleanup_errors=True) as folder:
                yield Path(folder)
        finally:
            self._uploading.release()

    def server_close(self) -> None:
        """Stop listening, and delete all uploads, complete or not."""
        self._is_closed = True
        super().server_close()
        self._uploads.cleanup()

    def serve_until_signal(self) -> None:
        """Serve until Ctrl-C, SIGTERM or SIGHUP; a signal that is ignored stays ignored."""

        def end(number: int, frame: Any) -> None:
            threading.Thread(target=self.shutdown, daemon=True).start()

        before = {number: signal.getsignal(number) for number in ENDING}
        taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        try:
            for number in taken:
                signal.signal(number, end)
            self.serve_forever(POLL)
        finally:
            self.server_close()
            for number in taken:
                signal.signal(number, before[number])
