"""The app's server: an address, a bounded number of connections, uploads that end with it. Standard library alone."""

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

from aviot.explain.access import Access, resolve
from aviot.explain.handler import AppPage, Handler
from aviot.explain.videos import Videos

CONNECTIONS = 128  # threads; further connections wait in the backlog
UPLOADS = 4  # received at a time, each up to the limit on disk
UPLOAD_PATIENCE = 60.0  # seconds that an upload waits for another to end
POLL = 0.2  # seconds in which the server notices that it is to end
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Limits:
    """What the app accepts."""

    upload_bytes: int

    def __post_init__(self) -> None:
        if self.upload_bytes < 1:
            raise ValueError(f"upload_bytes must be at least 1, got {self.upload_bytes}")


class App(ThreadingHTTPServer):
    """Serves one page to browsers of this machine, or of a network where somebody asked for that.

    `say` is told of what went wrong and was not foreseen, `names` are hosts that it answers to besides its own.
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
        """Where to look."""
        return self.access.url

    def server_bind(self) -> None:
        """Bind, `::` to IPv4 too, without asking the network for the machine's name."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def get_request(self) -> Any:
        """Accept a connection once there is room for it."""
        if not self._room.acquire(timeout=POLL):
            raise OSError("there is no room for another connection")
        try:
            return super().get_request()
        except BaseException:
            self._room.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and make room for another."""
        try:
            super().shutdown_request(request)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what was not foreseen; a browser that went away was."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            self.tell(error)

    def tell(self, error: BaseException) -> None:
        """Say what went wrong to whoever runs the app; not that an upload was deleted since it ends."""
        if not self._is_closed:
            self.say("".join(traceback.format_exception(error)))

    @contextmanager
    def upload_folder(self) -> Iterator[Path | None]:
        """Yield a folder for one upload, which goes with it, or with the server; None where too many come at once."""
        if self._is_closed or not self._uploading.acquire(timeout=UPLOAD_PATIENCE):
            yield None
            return
        try:
            with tempfile.TemporaryDirectory(dir=self._uploads.name, ignore_cleanup_errors=True) as folder:
                yield Path(folder)
        finally:
            self._uploading.release()

    def server_close(self) -> None:
        """Stop listening, and delete what was uploaded, whole or in part."""
        self._is_closed = True
        super().server_close()
        self._uploads.cleanup()

    def serve_until_signal(self) -> None:
        """Serve until Ctrl-C, or a signal that ends processes; one that was ignored before stays so."""

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
