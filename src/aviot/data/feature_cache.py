"""Cache of the frozen encoder's features on disk, bounded in size by removing the least recently used."""

import hashlib
import json
import logging
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aviot.utils.files import TEMPORARY, atomic_write
from aviot.utils.moved import renamed
from aviot.utils.values import as_whole

__getattr__ = renamed(__name__)
logger = logging.getLogger(__name__)

KEY_VERSION = 1
"""Version of the keys; increment it when the same video would give other features, so that older ones are not used."""

STALE_SECONDS = 3600.0
"""Age from which on a temporary file is taken to have lost its writer."""

MAX_FILE_HEADER = 512
"""Upper bound of a file's bytes beside its tensors."""

_SUFFIX = ".safetensors"
_EXTRA = "extra."
_KEY = re.compile(r"[0-9a-f]{16,128}")


@dataclass(frozen=True)
class FeatureKeys:
    """Settings that the features of every video depend on: sampling, frame size, encoder and data type.

    `encoder` is a `fingerprint` of its weights, `dtype` the features' data type as text.
    """

    fps: float
    max_frames: int
    image_size: int
    encoder: str
    dtype: str

    def key(self, video: Path) -> str | None:
        """Return the cache key of a video; None if the path is neither a file nor a folder.

        All bytes of the video count, but neither its name nor its date: copies share their features, and a repaired
        file gets new ones. Hashing takes a hundredth of the time of decoding.
        """
        digest = content_digest(video)
        if digest is None:
            return None
        parts = json.dumps([KEY_VERSION, digest, asdict(self)], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()


def content_digest(video: Path) -> str | None:
    """Return the SHA-256 of a file, or of the names and contents of a folder's files; None for anything else."""
    try:
        mode = video.stat().st_mode
        if stat.S_ISREG(mode):
            return _file_digest(video)
        if not stat.S_ISDIR(mode):
            return None
        files = sorted(entry.name for entry in os.scandir(video) if entry.is_file())
        parts = [(name, _file_digest(video / name)) for name in files]
    except (OSError, ValueError):
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of named tensors, the same on every device."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, eq=False)
class CachedVideo:
    """Encoder features of a video, with the times and the duration that its prompt states.

    `extras` has what else the encoder returned, by name.
    """

    features: Float[Tensor, "T S D"]
    times: tuple[float, ...]
    duration: float
    extras: Mapping[str, Tensor] = field(default_factory=dict)


class FeatureCache:
    """A folder of safetensors files, one per video, that any number of processes read and write at once.

    Files are written under a temporary name and renamed, and never modified, only replaced or removed; a process that
    has one open can still read it. A file's modification time is that of its last use. Files whose checksum is wrong
    are removed. If a write fails, for example on a full disk, the run continues without it.
    """

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        size = as_whole(max_bytes)
        if size is None or size < 1:
            raise ValueError(f"max_bytes must be a whole number of at least 1, got {max_bytes!r}")
        self.folder = Path(folder)
        self.max_bytes = size
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> CachedVideo | None:
        """Return the video stored under a key, or None."""
        path = self._path(key)
        try:
            found = _read(path)
        except FileNotFoundError:
            return None
        except (SafetensorError, RuntimeError, OSError, ValueError) as error:
            if path.exists():  # else another process removed it while it was opened
                logger.warning("the cached features %s are damaged (%s) and will be computed again", path, error)
                with suppress(OSError):
                    path.unlink()
            return None
        with suppress(OSError):  # removed since, or owned by another user
            os.utime(path)
        return found

    def put(self, key: str, video: CachedVideo) -> bool:
        """Store a video's features; return False if that failed."""
        path = self._path(key)
        tensors = {
            "features": video.features.detach().cpu().contiguous(),
            "times": torch.tensor(video.times, dtype=torch.float64),
            "duration": torch.tensor(video.duration, dtype=torch.float64),
        }
        tensors |= {f"{_EXTRA}{name}": extra.detach().cpu().contiguous() for name, extra in video.extras.items()}
        try:
            if not self._make_room(sum(tensor.nbytes for tensor in tensors.values())):
                return False
            with atomic_write(path) as temporary:
                save_file(tensors, temporary, {"crc32": str(_checksum(tensors))})
        except (OSError, SafetensorError) as error:
            logger.warning("the features of a video could not be stored as %s (%s)", path, error)
            return False
        return True

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key must be a hash in hexadecimal digits, got {key[:80]!r}")
        return self.folder / f"{key}{_SUFFIX}"

    def _make_room(self, size: int) -> bool:
        """Remove the least recently used files until `size` more bytes fit; return False if they never can.

        Temporary files count, and stay.
        """
        size += MAX_FILE_HEADER
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
            with suppress(FileNotFoundError):  # other processes remove files too
                status, path = entry.stat(), Path(entry.path)
                if path.suffix == TEMPORARY and status.st_mtime < oldest:
                    path.unlink()
                elif path.suffix in (_SUFFIX, TEMPORARY):
                    yield _File(status.st_mtime_ns, path, status.st_size)


@dataclass(frozen=True, order=True)
class _File:
    used: int
    path: Path
    size: int


def _read(path: Path) -> CachedVideo:
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
    if metadata.get("crc32") != str(_checksum(tensors)):
        raise ValueError("its checksum is wrong")
    missing = {"features", "times", "duration"} - set(tensors)
    if missing:
        raise ValueError(f"it has no {', '.join(sorted(missing))}")
    extras = {name.removeprefix(_EXTRA): tensor for name, tensor in tensors.items() if name.startswith(_EXTRA)}
    return CachedVideo(tensors["features"], tuple(tensors["times"].tolist()), tensors["duration"].item(), extras)


def _checksum(tensors: dict[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().data, total)
    return total
