"""Sample counts that the tables of an MP4 file claim, checked against its size before FFmpeg makes room for them.

A table may give one size and one duration for any number of samples, so that a few bytes stand for millions of index
entries. Other containers spend bytes on each packet.
"""

import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aviot.video.errors import VideoError
from aviot.video.limits import BYTES_PER_SAMPLE, FREE_SAMPLES, MAX_HEADER, MAX_SAMPLES
from aviot.video.structure import OpenFile

CONTAINERS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf", b"hoov", b"free"})
"""Boxes that are searched for others; the last two since FFmpeg looks in them for a header that was given up."""

DEEPEST = 10
"""Levels of boxes that are followed, as many as FFmpeg follows."""

AUDIO_ENTRY = 1024
"""Samples of uncompressed sound that share an index entry."""

GROUPS_ADDED = 3
"""Groups of pictures that FFmpeg adds to an edit: the one that it starts in, and two to be sure of its end."""

SIGNED = 2**31

MAX_BOXES, MAX_ROWS = 2**20, 2**20
"""Boxes of a file and rows of a table that are looked at: three seconds and 50 MB of a file that has more."""


@dataclass
class Track:
    """Tables of a track, as far as they decide how many index entries FFmpeg makes of it.

    Rows of `durations` are a number of samples and the ticks of each, of `chunk_sizes` the first chunk of a kind, its
    samples and the kind, of `edits` ticks of the movie (0: to the end) and the first tick of the track. `keyframes` are
    sample numbers; None: all are.
    """

    samples: int = 0
    chunks: int = 0
    timescale: int = 1
    handlers: set[bytes] = field(default_factory=set)
    durations: NDArray[np.float64] = field(default_factory=partial(np.zeros, (0, 2)))
    chunk_sizes: NDArray[np.float64] = field(default_factory=partial(np.zeros, (0, 3)))
    edits: NDArray[np.float64] = field(default_factory=partial(np.zeros, (0, 2)))
    keyframes: NDArray[np.float64] | None = None
    longest_delay: float = 0.0

    def entries(self, movie_timescale: int) -> float:
        """Return the number of index entries."""
        if self.handlers == {b"soun"} and len(self.durations) == 1 and self.durations[0, 1] == 1:
            return self._audio_entries()
        return max(self.samples, self._edited_entries(movie_timescale))

    def _audio_entries(self) -> float:
        first, size = self.chunk_sizes[:, 0], self.chunk_sizes[:, 1]
        repeats = np.diff(first, append=self.chunks + 1).clip(0, self.chunks)
        return float(np.sum(repeats * np.ceil(size / AUDIO_ENTRY)))

    def _edited_entries(self, movie_timescale: int) -> float:
        """Return the number of entries after editing: each edit has copies of the samples that it covers."""
        if not len(self.edits) or not len(self.durations):
            return 0.0
        length, begin = self.edits.T
        end = begin + length * self.timescale / max(1, movie_timescale)
        shown = self._samples_until(end + self.longest_delay) - self._samples_until(begin - self.longest_delay - 1)
        covered = np.where(length == 0, self.samples, shown + GROUPS_ADDED * self._longest_group())
        return float(covered.clip(0, self.samples).sum())

    def _longest_group(self) -> float:
        """Return the most samples from one keyframe to the next."""
        if self.keyframes is None:
            return 1.0
        return float(np.diff(self.keyframes, prepend=0.0, append=float(self.samples)).max())

    def _samples_until(self, ticks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many samples start by each time."""
        counts, steps = self.durations.T
        starts = np.concatenate(([0.0], np.cumsum(counts * steps)[:-1]))
        earlier = np.concatenate(([0.0], np.cumsum(counts)[:-1]))
        run = np.searchsorted(starts, ticks, side="right") - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(steps[run] > 0, np.floor((ticks - starts[run]) / steps[run]) + 1, counts[run])
        return np.where(run < 0, 0.0, earlier[run] + np.minimum(inside, counts[run]))


class Claims:
    """Counts what the boxes of a file claim."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._tracks: list[Track] = []
        self._movie_timescale = 1
        self._fragments = 0
        self._steps = 0

    def read(self, opened: OpenFile, start: int, end: int, depth: int = 0) -> None:
        """Visit the boxes between two positions and those inside them; `depth` is 0 for those of the file itself."""
        for kind, body, stop in self._boxes(opened, start, end):
            if kind == b"trak":
                self._tracks.append(Track())
            if kind in CONTAINERS and depth < DEEPEST:
                self.read(opened, body, stop, depth + 1)
            elif kind == b"cmov" and depth < DEEPEST:
                self._read_compressed(opened, body, stop, depth + 1)
            elif kind in (b"mvhd", b"trun") or self._tracks:
                self._note(kind, opened, body, stop)

    def _boxes(self, opened: OpenFile, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """Step from box to box as FFmpeg does: 1 stands for a size of 64 bits, 0 for the rest of what there is."""
        while start + 8 <= end and self._steps < MAX_BOXES:
            self._steps += 1
            head = opened.bytes_at(start, 16)
            size, body = int.from_bytes(head[:4], "big"), start + 8
            if size == 1:
                size, body = int.from_bytes(head[8:16], "big"), start + 16
            stop = end if size == 0 else min(end, start + size)
            if stop < body or len(head) < 8:
                return
            yield head[4:8], body, stop
            start = stop

    def _read_compressed(self, opened: OpenFile, start: int, end: int, depth: int) -> None:
        """Visit the boxes of a header that is stored compressed."""
        for kind, body, stop in self._boxes(opened, start, end):
            if kind != b"cmvd":
                continue
            unpacker = zlib.decompressobj()
            try:
                header = unpacker.decompress(
                    opened.bytes_at(body + 4, min(stop - body - 4, MAX_HEADER)), MAX_HEADER + 1
                )
            except zlib.error:
                return
            if len(header) > MAX_HEADER:
                raise VideoError(
                    f"{self._path} has a compressed header of more than {MAX_HEADER:,} bytes; re-encode it"
                )
            self._size += len(header)
            self.read(OpenFile(io.BytesIO(header), len(header), -1), 0, len(header), depth)

    def _note(self, kind: bytes, opened: OpenFile, body: int, stop: int) -> None:
        """Take from a box what counts."""
        head = opened.bytes_at(body, min(28, stop - body)).ljust(28, b"\0")
        long = head[0] == 1  # version 1 has times of 64 bits
        numbers = np.frombuffer(head, ">u4")
        track = self._tracks[-1] if self._tracks else Track()
        match kind:
            case b"mvhd":
                self._movie_timescale = int(numbers[5 if long else 3])
            case b"mdhd":
                track.timescale = int(numbers[5 if long else 3])
            case b"hdlr":
                track.handlers.add(head[8:12])
            case b"trun":
                self._fragments += int(numbers[1])
            case b"stsz" | b"stz2":
                track.samples = max(track.samples, int(numbers[2]))
            case b"stco" | b"co64":
                track.chunks = max(track.chunks, int(numbers[1]))
            case b"stts":
                track.durations = _table(opened, body, stop, ">u4", 2)
                track.durations[track.durations[:, 1] >= SIGNED, 1] = 1  # FFmpeg takes these for mistakes
            case b"ctts":
                track.longest_delay = float(np.abs(_table(opened, body, stop, ">i4", 2)[:, 1]).max(initial=0.0))
            case b"stsc":
                track.chunk_sizes = _table(opened, body, stop, ">u4", 3)
            case b"stss":
                track.keyframes = _table(opened, body, stop, ">u4", 1)[:, 0]
            case b"elst":
                table = _table(opened, body, stop, ">i8" if long else ">i4", 2, 20 if long else 12)
                track.edits = table[table[:, 1] >= 0]

    def check(self) -> None:
        """Raise VideoError if the boxes that were read claim more than the file may."""
        claimed = self._fragments + sum(track.entries(self._movie_timescale) for track in self._tracks)
        allowed = min(MAX_SAMPLES, FREE_SAMPLES + self._size // BYTES_PER_SAMPLE)
        if claimed > allowed:
            raise VideoError(
                f"{self._path} claims {claimed:,.0f} samples, more than the {allowed:,} that a file of "
                f"{self._size:,} bytes may; it is damaged or made to exhaust memory"
            )


def _table(
    opened: OpenFile, body: int, stop: int, kind: str, columns: int, row_bytes: int | None = None
) -> NDArray[np.float64]:
    """Return the first columns of a table whose row count comes before it, as far as the box holds it."""
    width = np.dtype(kind).itemsize * columns
    row_bytes = row_bytes or width
    data = opened.bytes_at(body + 4, max(0, min(stop - body - 4, 4 + MAX_ROWS * row_bytes)))
    count = min(int.from_bytes(data[:4], "big"), max(0, len(data) - 4) // row_bytes)
    if not count:
        return np.zeros((0, columns))
    rows = np.frombuffer(data, np.uint8, count * row_bytes, 4).reshape(count, row_bytes)[:, :width]
    return np.ascontiguousarray(rows).view(kind).astype(np.float64)


def check_claims(path: Path) -> None:
    """Refuse a file whose tables claim more samples than it can hold; others are left to FFmpeg."""
    with open(path, "rb") as file:
        opened = OpenFile(file, os.fstat(file.fileno()).st_size, -1)
        claims = Claims(path, opened.size)
        claims.read(opened, 0, opened.size)
    claims.check()
