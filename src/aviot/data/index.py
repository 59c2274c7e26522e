"""Index of the records in a file: built in one pass, stored on disk, memory-mapped when used."""

import hashlib
import json
import logging
import os
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from aviot.data.checks import ANY_FOLDER, DataError, RecordError, VideoFolder
from aviot.data.record import Record, parse_record
from aviot.data.scan import Found, Scanner, decode_json
from aviot.utils.files import atomic_write

logger = logging.getLogger(__name__)

VERSION = 3
"""Version of the index; increment it when its content changes, so that older ones are not used."""

MAX_PROBLEMS = 20
"""Messages about unusable records that an index stores."""

_COLUMNS = {"offset": "q", "length": "i", "number": "q", "characters": "i", "seconds": "f"}
_MISSING = float("nan")


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """The usable records of one file, numbered from 0; the arrays are views of a file on disk.

    `digest` is the SHA-256 of the records' file. `bad` is the number of records left out, and `problems` are messages
    about the first of them.
    """

    path: Path
    digest: str
    is_array: bool
    offset: NDArray[np.int64]
    length: NDArray[np.int32]
    number: NDArray[np.int64]  # of the element or line
    characters: NDArray[np.int32]
    seconds: NDArray[np.float32]  # NaN if unknown
    bad: int
    problems: tuple[str, ...]
    videos: VideoFolder

    def __len__(self) -> int:
        return len(self.offset)

    def where(self, index: int) -> str:
        """Return the location of a record, for messages."""
        return location(self.path, self.is_array, int(self.number[index]))

    def read(self, index: int) -> Record:
        """Read one record from the file."""
        with self.path.open("rb") as file:
            file.seek(int(self.offset[index]))
            data = file.read(int(self.length[index]))
        try:
            return parse_record(decode_json(data), self.where(index), self.videos)
        except ValueError as error:
            raise DataError(
                f"{self.where(index)} was a valid record when it was indexed and is not now ({error}); files must not "
                "change during training: start again"
            ) from error


def open_index(path: Path, folder: Path, videos: VideoFolder = ANY_FOLDER) -> RecordIndex:
    """Return the index of a file, stored in `folder`; it is built if missing or if the file has changed since.

    `videos` decides which videos the records may name; records that name others are left out and listed. Several
    processes may build an index at once: each writes its own file and renames it, and all are equal.
    """
    path = path.absolute()
    stored = folder / f"{_key(path, videos)}.safetensors"
    if (index := _load(stored, path, videos)) is None:
        logger.info("indexing %s", path)
        _build(path, stored, videos)
        index = _load(stored, path, videos)
    if index is None:
        raise DataError(f"the index {stored} cannot be read back; check that no other program changes that folder")
    return index


def location(path: Path, is_array: bool, number: int) -> str:
    """Return the location of a record, for messages."""
    return f"{path}, {'element' if is_array else 'line'} {number}"


def default_folder() -> Path:
    """Return the index folder in the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aviot" / "index"


def _key(path: Path, videos: VideoFolder) -> str:
    """Return a hash of path, size, modification time and accepted videos."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise DataError(f"there is no records file {path} ({error}); give a JSON, JSONL or YAML file") from None
    if not path.is_file():
        raise DataError(f"{path} is not a regular file; give a JSON, JSONL or YAML file")
    allowed = [None if videos.root is None else os.fspath(videos.root.absolute()), videos.absolute]
    identity = [VERSION, os.fspath(path), status.st_size, status.st_mtime_ns, allowed]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _build(path: Path, stored: Path, videos: VideoFolder) -> None:
    columns = {name: array(kind) for name, kind in _COLUMNS.items()}
    problems: list[str] = []
    bad = 0
    with path.open("rb") as file:
        scanner = Scanner(file, str(path))
        for found in scanner:
            try:
                _add(columns, found, _record(found, videos))
            except RecordError as error:
                bad += 1
                if len(problems) < MAX_PROBLEMS:
                    line = f" (line {found.line})" if scanner.is_array else ""
                    problems.append(f"{location(path, scanner.is_array, found.number)}{line}: {error}")
    about = {"digest": scanner.digest, "is_array": scanner.is_array, "bad": bad, "problems": problems}
    tensors = {name: torch.from_numpy(np.array(values)) for name, values in columns.items()}
    try:
        stored.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(stored) as temporary:
            save_file(tensors, temporary, {"about": json.dumps(about)})
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"the index of {path} cannot be written to {stored.parent} ({error}); give another folder as index_folder"
        ) from error


def _record(found: Found, videos: VideoFolder) -> Record:
    if found.problem is not None:
        raise RecordError(found.problem)
    return parse_record(found.value, str(found.number), videos)


def _add(columns: dict[str, array], found: Found, record: Record) -> None:
    seconds = _MISSING if record.seconds is None else record.seconds
    row = (found.offset, found.length, found.number, record.characters, seconds)
    for column, value in zip(columns.values(), row, strict=True):
        column.append(value)


def _load(stored: Path, path: Path, videos: VideoFolder) -> RecordIndex | None:
    """Return the stored index, or None if it is missing or damaged."""
    try:
        with safe_open(stored, "pt") as file:
            about = json.loads(file.metadata()["about"])
            columns = {name: file.get_tensor(name).numpy() for name in _COLUMNS}  # views of the mapped file
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("the index %s is damaged (%s) and is rebuilt", stored, error)
        return None
    about["problems"] = tuple(about["problems"])
    return RecordIndex(path=path, videos=videos, **columns, **about)
