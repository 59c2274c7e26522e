"""Addresses of videos: data in the request, files below one folder, and other machines' files."""

import base64
import binascii
import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from aviot.serve.settings import Settings
from aviot.web.refusal import Refused

FRAMES_TYPE = "video/jpeg"
MOST_DIGESTS = 10_000  # of files that are remembered
_DATA = re.compile(r"data:(?P<kind>video/[\w.+-]{1,60})(?:;[\w=.+-]{1,60})*;base64,", re.ASCII)
_PICTURE = re.compile(r"data:image/(?:jpeg|jpg|png|webp);base64,", re.ASCII)
_NO_FILE = "there is no such video in the server's media folder"


@dataclass(frozen=True)
class Media:
    """The bytes of a video, or the path of its file, with the hash of its content.

    `frames` are pictures that were sampled before. `name` stands for the video in messages. A video with neither data
    nor frames nor path is known by its hash alone.
    """

    digest: str
    name: str
    data: bytes | None = None
    frames: tuple[bytes, ...] = ()
    path: Path | None = None

    @property
    def is_known_by_hash(self) -> bool:
        """True if the video's content is not here, so that it cannot be read again."""
        return self.data is None and not self.frames and self.path is None

    @contextmanager
    def as_path(self) -> Iterator[Path]:
        """Yield a path from which the video can be read; data is written to a file that is removed afterwards."""
        if self.path is not None:
            yield self.path
            return
        with TemporaryDirectory(prefix="aviot-serve-", ignore_cleanup_errors=True) as folder:
            if self.frames:
                for number, picture in enumerate(self.frames):
                    (Path(folder) / f"{number:06d}.jpg").write_bytes(picture)
                yield Path(folder)
                return
            path = Path(folder) / "video"  # the content decides what it is
            path.write_bytes(self.data or b"")
            yield path


def frames_address(pictures: Sequence[str], field: str) -> str:
    """Return the address of a video whose frames are the pictures at `data:` addresses; their content tells their type.

    It is the address of the same frames sent as one: `data:video/jpeg;base64,FRAME,FRAME,…`.
    """
    data = []
    for number, url in enumerate(pictures, 1):
        head = _PICTURE.match(url)
        if head is None or url.count(",") > 1:
            sentence = f"frame {number}: expected data:image/jpeg;base64,… (or png, or webp), got {url[:40]!r}"
            raise Refused(HTTPStatus.BAD_REQUEST, sentence, code="wrong_data", field=field)
        data.append(url[head.end() :])
    return f"data:{FRAMES_TYPE};base64,{','.join(data)}"


class Library:
    """Finds the media of addresses: `data:` and, below the media folder, `file:`; others are for `remote`."""

    def __init__(self, settings: Settings) -> None:
        given = settings.media_folder
        self.folder = None if given is None else given.resolve()
        self._names = () if given is None or self.folder is None else (self.folder, Path(os.path.abspath(given)))
        self.most_frames = settings.limits.frames
        self._digests: dict[tuple[int, ...], str] = {}
        self._lock = threading.Lock()

    def find(self, url: str) -> Media:
        """Return the media of an address that is not another machine's; raise Refused if there is none."""
        scheme = url[:16].partition(":")[0].lower()
        if scheme == "data":
            return self._data(url)
        if scheme == "file":
            return self._file(url)
        raise _refused(
            "a video's address must begin with data: or file:, or be an http address if the server allows those; got "
            f"{url[:40]!r}",
            code="wrong_scheme",
        )

    def _data(self, url: str) -> Media:
        head = _DATA.match(url[:200])
        if head is None:
            raise _refused(
                "expected data:video/mp4;base64,… or data:video/jpeg;base64,FRAME,FRAME,…", code="wrong_data"
            )
        is_frames = head["kind"].lower() == FRAMES_TYPE
        frames = url.count(",", head.end()) + 1 if is_frames else 1
        if frames > self.most_frames:
            sentence = f"the request has {frames:,} frames; this server takes at most {self.most_frames:,}"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, code="too_many_frames", field="messages")
        parts = url[head.end() :].split(",") if is_frames else [url[head.end() :]]
        try:
            decoded = tuple(base64.b64decode(part, validate=True) for part in parts)
        except binascii.Error:
            raise _refused("the video's data is not valid base64", code="wrong_data") from None
        if not all(decoded):
            raise _refused("the video's data is empty", code="wrong_data")
        if not is_frames:
            return Media(hashlib.sha256(decoded[0]).hexdigest(), "the video in the request", data=decoded[0])
        digests = "".join(hashlib.sha256(part).hexdigest() for part in decoded)
        return Media(hashlib.sha256(digests.encode()).hexdigest(), "the frames in the request", frames=decoded)

    def _file(self, url: str) -> Media:
        """Return a file below the media folder; links and everything outside do not exist, whatever the path says."""
        if self.folder is None:
            raise _refused("this server reads no files of its own; send the video's data", code="no_media_folder")
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _refused(_NO_FILE, code="no_such_video") from None
        path = Path(os.path.normpath("/" + unquote(parts.path).lstrip("/")))
        inside = path.relative_to(next(filter(path.is_relative_to, self._names), "/"))
        if parts.netloc not in ("", "localhost") or not inside.parts or "\0" in str(inside):
            raise _refused(_NO_FILE, code="no_such_video")
        try:
            with self._opened(inside) as handle:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode):
                    raise _refused(_NO_FILE, code="no_such_video")
                digest = self._digest(handle, status)
        except OSError:
            raise _refused(_NO_FILE, code="no_such_video") from None
        return Media(digest, inside.name, path=self.folder / inside)

    @contextmanager
    def _opened(self, inside: Path) -> Iterator[int]:
        """Open a file below the folder part by part, without following any link."""
        assert self.folder is not None
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for number, name in enumerate(inside.parts):
                last = number == len(inside.parts) - 1
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (0 if last else os.O_DIRECTORY)
                deeper = os.open(name, flags, dir_fd=handle)
                os.close(handle)
                handle = deeper
            yield handle
        finally:
            with suppress(OSError):
                os.close(handle)

    def _digest(self, handle: int, status: os.stat_result) -> str:
        """Return the hash of a file's content, computed once per version of the file."""
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        found = self._digests.get(key)
        if found is None:
            with open(handle, "rb", closefd=False) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            with self._lock:
                self._digests[key] = found
                while len(self._digests) > MOST_DIGESTS:
                    del self._digests[next(iter(self._digests))]
        return found


def _refused(sentence: str, *, code: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, sentence, code=code, field="messages")
