"""A training set: its files of records, listed in a YAML file or given as one, and all records under one numbering."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aviot.data.checks import DataError, VideoFolder, unique_keys_loader
from aviot.data.config import BadRecords, DataConfig
from aviot.data.index import RecordIndex, default_folder, open_index
from aviot.data.record import Record
from aviot.data.shuffle import Selection

logger = logging.getLogger(__name__)

MAX_LIST_BYTES = 2**20
"""Size in bytes of the largest accepted list of files; a mebibyte lists thousands of files."""

MAX_DEPTH = 8
"""Nesting levels that a manifest may have; a valid one has three."""

_SUFFIXES = (".yaml", ".yml")
_KEYS = ("json_path", "sampling_strategy", "video_root")
_FORM = "datasets: a list of {json_path: FILE, sampling_strategy: all}"


@dataclass(frozen=True)
class LocatedRecord:
    """A record, its location for messages, and the path of its video."""

    record: Record
    where: str
    video: Path


@dataclass(frozen=True)
class RecordFile:
    """A file of records, the part of it that is used, and the folder that its video paths start from."""

    path: Path
    selection: Selection
    video_root: Path


@dataclass(frozen=True, eq=False)
class Corpus:
    """All files in order: numbers 0 .. len - 1 are the selected records of the first, then of the second, …"""

    files: tuple[RecordFile, ...]
    indexes: tuple[RecordIndex, ...]
    counts: tuple[int, ...]
    seed: int

    @classmethod
    def open(cls, config: DataConfig) -> "Corpus":
        """Open the index of every file, and check all records; the index of a known file is read from disk."""
        folder = default_folder() if config.index_folder is None else Path(config.index_folder)
        files = read_record_files(config.records, config.video_root)
        absolute = config.absolute_paths
        allowed = absolute if isinstance(absolute, bool) else tuple(absolute)
        indexes = tuple(open_index(s.path, folder, VideoFolder(s.video_root, allowed)) for s in files)
        _report_problems(indexes, config.bad_records)
        counts = tuple(s.selection.count(len(i), str(i.path)) for s, i in zip(files, indexes, strict=True))
        if not sum(counts):
            names = ", ".join(str(index.path) for index in indexes)
            raise DataError(f"the training set is empty: there is no record in {names}")
        return cls(files, indexes, counts, config.seed)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> LocatedRecord:
        if not 0 <= number < len(self):
            raise IndexError(f"the set has {len(self)} records, got number {number}")
        ((file, local),) = self._locate(np.array([number]))
        index = self.indexes[file]
        record = index.read(int(local[0]))
        return LocatedRecord(record, index.where(int(local[0])), self.files[file].video_root / record.video)

    def lengths(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the characters of these records' conversations and the seconds of their videos, NaN if unknown."""
        characters, seconds = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.float64)
        owner = np.searchsorted(self._ends, numbers, side="right")
        for file, local in self._locate(numbers):
            characters[owner == file] = self.indexes[file].characters[local]
            seconds[owner == file] = self.indexes[file].seconds[local]
        return characters, seconds

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the training data: the content of every file and the part of it that is used."""
        parts = [
            (index.digest, file.selection.part, str(file.selection.amount), count)
            for file, index, count in zip(self.files, self.indexes, self.counts, strict=True)
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts, dtype=np.int64)

    def _locate(self, numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """Return, for each file of these records, its number and their numbers in its file, in the given order."""
        owner = np.searchsorted(self._ends, numbers, side="right")
        found = []
        for file in np.unique(owner).tolist():
            count, size = self.counts[file], len(self.indexes[file])
            places = numbers[owner == file] - (int(self._ends[file]) - count)
            chosen = self.files[file].selection.numbers(places, size, count, self.seed, file)
            found.append((file, chosen))
        return found


def _report_problems(indexes: Sequence[RecordIndex], policy: BadRecords) -> None:
    bad = sum(index.bad for index in indexes)
    if not bad:
        return
    messages = [problem for index in indexes for problem in index.problems]
    more = [f"and {bad - len(messages)} more"] if bad > len(messages) else []
    listing = "\n  ".join(messages + more)
    total = bad + sum(map(len, indexes))
    if policy == "refuse":
        raise DataError(
            f"{bad} of {total} records cannot be used; correct them, or leave them out with bad_records: skip"
            f"\n  {listing}"
        )
    logger.warning("%d of %d records cannot be used and are left out:\n  %s", bad, total, listing)


def read_record_files(records: str, video_root: str | None) -> tuple[RecordFile, ...]:
    """Return the files of records that a YAML file lists, or the single file of records.

    Listed paths are relative to the list's own folder. Video paths start from the file's `video_root`, else from the
    one given here, else from the folder of the records.
    """
    path = Path(records)
    if path.suffix.lower() not in _SUFFIXES:
        return (RecordFile(path, Selection("all"), Path(video_root) if video_root else path.parent),)
    entries = _read_list(path)
    return tuple(_record_file(entry, f"{path}, dataset {i}", path, video_root) for i, entry in enumerate(entries, 1))


def _read_list(path: Path) -> list[Any]:
    content = _load_yaml(path)
    if not isinstance(content, dict) or set(content) != {"datasets"} or not isinstance(content["datasets"], list):
        raise DataError(f"{path} must hold `{_FORM}` and nothing else")
    if not content["datasets"]:
        raise DataError(f"{path} lists no datasets; give at least one: {_FORM}")
    return content["datasets"]


def _record_file(entry: Any, where: str, listing: Path, video_root: str | None) -> RecordFile:
    if not isinstance(entry, dict):
        raise DataError(f"{where} must be a mapping with the keys {', '.join(_KEYS)}, got {type(entry).__name__}")
    unknown = sorted(str(key)[:80] for key in entry if key not in _KEYS)
    if unknown:
        raise DataError(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    for key in ("json_path", "video_root"):
        value = entry.get(key)
        if (value is not None or key == "json_path") and not (isinstance(value, str) and value):
            raise DataError(f"{where}: {key} must be a path as text, got {type(value).__name__}")
    path = listing.parent / entry["json_path"]
    root = listing.parent / entry["video_root"] if entry.get("video_root") else Path(video_root or path.parent)
    return RecordFile(path, Selection.parse(entry.get("sampling_strategy", "all"), where), root)


def _load_yaml(path: Path) -> Any:
    """Return the content of a YAML file of plain values; tags that construct objects are refused."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise DataError(f"manifests need PyYAML, which is missing ({error}); pip install 'aviot[video]'") from error
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_LIST_BYTES else None
    except (OSError, ValueError) as error:
        raise DataError(f"the list of files {path} cannot be read ({error})") from None
    if data is None:
        raise DataError(f"the list of files {path} is larger than {MAX_LIST_BYTES:,} bytes; is it a file of records?")
    try:
        _check_complexity(yaml, data, path)
        return yaml.load(data, unique_keys_loader())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not YAML of plain values: {error}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not YAML of plain values: {error}") from None


def _check_complexity(yaml: Any, data: bytes, path: Path) -> None:
    """Raise DataError for aliases, which can expand without limit, and deep nesting, which is slow to parse."""
    depth = 0
    for event in yaml.parse(data, yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise DataError(f"{path}, line {line}: aliases (*name) are not supported; write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DataError(f"{path}, line {line}: nested more than {MAX_DEPTH} deep; expected `{_FORM}`")
