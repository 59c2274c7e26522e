"""All records of a training set under one numbering, none of them held."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aviot.data.config import BadRecords, DataConfig
from aviot.data.errors import DataError
from aviot.data.index import RecordIndex, default_folder, open_index
from aviot.data.manifest import Source, read_sources
from aviot.data.paths import VideoFolder
from aviot.data.record import Record

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Located:
    """A record, where it was found, and the file that its video should be."""

    record: Record
    where: str
    video: Path


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sources one after another: numbers 0 .. len - 1 are the selected records of the first, then of the second, …"""

    sources: tuple[Source, ...]
    indexes: tuple[RecordIndex, ...]
    counts: tuple[int, ...]
    seed: int

    @classmethod
    def open(cls, config: DataConfig) -> "Corpus":
        """Find the records of every source, checked; a file that was seen before takes no time."""
        folder = default_folder() if config.index_folder is None else Path(config.index_folder)
        sources = read_sources(config.records, config.video_root)
        absolute = config.absolute_paths
        allowed = absolute if isinstance(absolute, bool) else tuple(absolute)
        indexes = tuple(open_index(s.path, folder, VideoFolder(s.video_root, allowed)) for s in sources)
        _report_problems(indexes, config.bad_records)
        counts = tuple(s.selection.count(len(i), str(i.path)) for s, i in zip(sources, indexes, strict=True))
        if not sum(counts):
            names = ", ".join(str(index.path) for index in indexes)
            raise DataError(f"the training set is empty: there is no record in {names}")
        return cls(sources, indexes, counts, config.seed)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> Located:
        if not 0 <= number < len(self):
            raise IndexError(f"the set has {len(self)} records, got number {number}")
        ((source, local),) = self._locate(np.array([number]))
        index = self.indexes[source]
        record = index.read(int(local[0]))
        return Located(record, index.where(int(local[0])), self.sources[source].video_root / record.video)

    def lengths(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Characters of these records' conversations and seconds of their videos, NaN where unknown."""
        characters, seconds = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.float64)
        owner = np.searchsorted(self._ends, numbers, side="right")
        for source, local in self._locate(numbers):
            characters[owner == source] = self.indexes[source].characters[local]
            seconds[owner == source] = self.indexes[source].seconds[local]
        return characters, seconds

    @cached_property
    def fingerprint(self) -> str:
        """Changes with what is trained on: the content of every file and the part of it that is used."""
        parts = [
            (index.digest, source.selection.part, str(source.selection.amount), count)
            for source, index, count in zip(self.sources, self.indexes, self.counts, strict=True)
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts, dtype=np.int64)

    def _locate(self, numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """For each source among them: its number, and its records' numbers in the file, in the order given."""
        owner = np.searchsorted(self._ends, numbers, side="right")
        found = []
        for source in np.unique(owner).tolist():
            count, size = self.counts[source], len(self.indexes[source])
            places = numbers[owner == source] - (int(self._ends[source]) - count)
            chosen = self.sources[source].selection.numbers(places, size, count, self.seed, source)
            found.append((source, chosen))
        return found


def _report_problems(indexes: Sequence[RecordIndex], policy: BadRecords) -> None:
    bad = sum(index.bad for index in indexes)
    if not bad:
        return
    sentences = [problem for index in indexes for problem in index.problems]
    more = [f"and {bad - len(sentences)} more"] if bad > len(sentences) else []
    listing = "\n  ".join(sentences + more)
    kept = sum(map(len, indexes))
    if policy == "refuse":
        raise DataError(
            f"{bad} of {bad + kept} records cannot be used; correct them, or leave them out with bad_records: skip"
            f"\n  {listing}"
        )
    logger.warning("%d of %d records cannot be used and are left out:\n  %s", bad, bad + kept, listing)
