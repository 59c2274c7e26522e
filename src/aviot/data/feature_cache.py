"""Features of the frozen encoder on disk, kept below a size by dropping those used longest ago."""

import logging
import os
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aviot.utils.files import TEMPORARY, replacing
from aviot.utils.values import as_whole

logger = logging.getLogger(__name__)

STALE_SECONDS = 3600.0
"""Age at which a file being written must have lost its writer."""

_SUFFIX = ".safetensors"
_KEY = re.compile(r"[0-9a-f]{16,128}")


@dataclass(frozen=True, eq=False)
class EncodedVideo:
    """A video as the encoder sees it, with what the prompt says of it."""

    features: Float[Tensor, "T S D"]
    times: tuple[float, ...]
    duration: float


class FeatureCache:
    """A folder of safetensors files, one a video, that any number of processes read and write at once.

    Files appear whole (written under another name, then renamed) and are never changed, only replaced or removed; a
    reader that has one open keeps it. The date of a file is when it was last used. Checksums tell damaged files, which
    are removed. Where a write fails, as on a full disk, the run goes on without it.
    """

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        size = as_whole(max_bytes)
        if size is None or size < 1:
            raise ValueError(f"max_bytes must be a whole number of at least 1, got {max_bytes!r}")
        self.folder = Path(folder)
        self.max_bytes = size
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> EncodedVideo | None:
        """What is kept under a key, or None."""
        path = self._path(key)
        try:
            found = _read(path)
        except FileNotFoundError:
            return None
        except (SafetensorError, RuntimeError, OSError, ValueError) as error:
            if path.exists():  # else it was dropped while it was opened
                logger.warning("the cached features %s are damaged (%s) and are made again", path, error)
                with suppress(OSError):
                    path.unlink()
            return None
        with suppress(OSError):  # dropped since, or another user's
            os.utime(path)
        return found

    def put(self, key: str, video: EncodedVideo) -> bool:
        """Keep a video's features; False if they could not be."""
        path = self._path(key)
        tensors = {
            "features": video.features.detach().cpu().contiguous(),
            "times": torch.tensor(video.times, dtype=torch.float64),
            "duration": torch.tensor(video.duration, dtype=torch.float64),
        }
        try:
            if not self._make_room(sum(tensor.nbytes for tensor in tensors.values())):
                return False
            with replacing(path) as temporary:
                save_file(tensors, temporary, {"crc32": str(_checksum(tensors))})
        except (OSError, SafetensorError) as error:
            logger.warning("the features of a video could not be kept as %s (%s)", path, error)
            return False
        return True

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key must be a hash in hexadecimal digits, got {key[:80]!r}")
        return self.folder / f"{key}{_SUFFIX}"

    def _make_room(self, size: int) -> bool:
        """Drop what was used longest ago until `size` more bytes fit; files being written count and stay."""
        size += HEADER
        if size > self.max_bytes:
            logger.warning("the features of a video take %d bytes, more than the cache's %d", size, self.max_bytes)
            return False
        files = sorted(self._files())
        total = sum(file.size for file in files)
        for file in files:
            if total + size <= self.max_bytes:
                break
            if file.path.suffix == _SUFFIX:
                file.path.unlink(missing_ok=True)
                total -= file.size
        return True

    def _files(self) -> Iterator["_File"]:
        oldest = time.time() - STALE_SECONDS
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):  # another process drops files too
                status, path = entry.stat(), Path(entry.path)
                if path.suffix == TEMPORARY and status.st_mtime < oldest:
                    path.unlink()
                elif path.suffix in (_SUFFIX, TEMPORARY):
                    yield _File(status.st_mtime_ns, path, status.st_size)


HEADER = 512
"""Bytes of a file beside its tensors, at most."""


@dataclass(frozen=True, order=True)
class _File:
    used: int
    path: Path
    size: int


def _read(path: Path) -> EncodedVideo:
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in ("features", "times", "duration")}
    if metadata.get("crc32") != str(_checksum(tensors)):
        raise ValueError("its checksum is wrong")
    return EncodedVideo(tensors["features"], tuple(tensors["times"].tolist()), tensors["duration"].item())


def _checksum(tensors: dict[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().data, total)
    return total
