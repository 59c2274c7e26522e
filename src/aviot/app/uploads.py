"""Videos that browsers send: received into files that are deleted once they are read, or when the app ends."""

import asyncio
import errno
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from aviot.explain.page import readable
from aviot.serve.media import Library, Media
from aviot.web import body
from aviot.web.body import Headers, Receive, header
from aviot.web.refusal import Disconnected, Refused

SCHEME = "upload:"
"""The beginning of the address of an uploaded video in a question; the hash of its content follows."""

UPLOADS = 4  # received or read at a time, each up to the limit on disk
UPLOAD_WAIT = 60.0  # seconds that an upload waits for another to end
PIECE_BYTES = 2**20  # written to disk at a time
FILE_NAME = b"x-file-name"
MOST_DIGITS = 18
_PLAIN_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


class UploadLibrary(Library):
    """Finds uploaded videos too; only those that are still kept can be asked about."""

    def find(self, url: str) -> Media:
        """Return the media of an address."""
        if url.startswith(SCHEME):
            return Media(url.removeprefix(SCHEME), "the upload")
        return super().find(url)


class Uploads:
    """A folder of videos that are being received or read; `write` runs a function in a thread."""

    def __init__(self, most_bytes: int, write: Callable[..., Awaitable[Any]]) -> None:
        self._most_bytes, self._write = most_bytes, write
        self._places = asyncio.Semaphore(UPLOADS)
        self._folder = tempfile.TemporaryDirectory(prefix="aviot-app-", ignore_cleanup_errors=True)

    def close(self) -> None:
        """Delete all uploads, complete or not."""
        self._folder.cleanup()

    @asynccontextmanager
    async def received(self, headers: Headers, receive: Receive) -> AsyncIterator[Media]:
        """Yield the video in a request's body; its file is deleted at the end of the block."""
        length = self._length(headers)
        name = readable(Path(unquote(header(headers, FILE_NAME) or "")).name) or "the upload"
        try:
            async with asyncio.timeout(UPLOAD_WAIT):
                await self._places.acquire()
        except TimeoutError:
            sentence = "too many videos at once; try again in a minute"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, sentence, code="uploads_full", retry=60) from None
        try:
            with tempfile.TemporaryDirectory(dir=self._folder.name, ignore_cleanup_errors=True) as folder:
                # The content decides whether it is a video; the suffix helps FFmpeg to identify raw streams.
                suffix = Path(name).suffix.lower()
                path = Path(folder) / f"video{suffix if _PLAIN_SUFFIX.fullmatch(suffix) else ''}"
                yield Media(await self._stored(path, length, receive), name, path=path)
        finally:
            self._places.release()

    def _length(self, headers: Headers) -> int:
        given = header(headers, b"content-length") or ""
        if header(headers, b"transfer-encoding") is not None or not (given.isascii() and given.isdecimal()):
            sentence = "the request must state its length and not be chunked"
            raise Refused(HTTPStatus.LENGTH_REQUIRED, sentence, code="length_required")
        if len(given) > MOST_DIGITS or int(given) > self._most_bytes:
            sentence = f"request too large: at most {self._most_bytes / 1e6:,.0f} MB"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, code="request_too_large")
        return int(given)

    async def _stored(self, path: Path, length: int, receive: Receive) -> str:
        """Write a body to a file and return the hash of its content."""
        try:
            async with asyncio.timeout(body.BODY_SECONDS + length / body.SLOWEST_BYTES):
                with path.open("wb") as file:
                    return await self._written(file, receive)
        except TimeoutError:
            sentence = "the video came too slowly; send it again"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, sentence, code="too_slow") from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            sentence = "the disk of the app's machine is full; make room and try again"
            raise Refused(HTTPStatus.INSUFFICIENT_STORAGE, sentence, code="disk_full") from error

    async def _written(self, file: IO[bytes], receive: Receive) -> str:
        digest, waiting, more = hashlib.sha256(), bytearray(), True

        def write(piece: bytes) -> None:
            file.write(piece)
            digest.update(piece)

        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            waiting += message.get("body", b"")
            more = message.get("more_body", False)
            if len(waiting) >= PIECE_BYTES or not more:
                await self._write(write, bytes(waiting))
                waiting.clear()
        await self._write(file.flush)
        return digest.hexdigest()
