"""Check of the sample counts in an MP4 file's tables against its size, before FFmpeg allocates memory for them.

A table may give one size and one duration for any number of samples, so that a few bytes declare millions of index
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

from aviot.video.checks import BYTES_PER_SAMPLE, FREE_SAMPLES, MAX_HEADER, MAX_SAMPLES, VideoError
from aviot.video.structure import OpenFile

CONTAINERS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf", b"hoov", b"free"})
"""Boxes that are parsed for others; the last two because FFmpeg looks in them for an abandoned header."""

MAX_DEPTH = 10
"""Nesting levels of boxes that are parsed, as in FFmpeg."""

AUDIO_ENTRY = 1024
"""Samples of uncompressed audio that share an index entry."""

GROUPS_ADDED = 3
"""Groups of pictures that FFmpeg adds to an edit: the one that it starts in, and two as a margin at its end."""

MIN_INVALID_DURATION = 2**31
"""Smallest sample duration that FFmpeg takes for a negative number, and so for an error."""

MAX_BOXES, MAX_ROWS = 2**20, 2**20
"""Boxes of a file and rows of a table that are read: three seconds and 50 MB for a file that has more."""


@dataclass
class Track:
    """Tables of a track, as far as they determine the number of index entries that FFmpeg creates for it.

    Rows of `durations` are a number of samples and the ticks of each; rows of `chunk_sizes` the first chunk of a run,
    its samples per chunk and its description; rows of `edits` ticks of the movie (0: to the end) and the first tick of
    the track. `keyframes` are sample numbers; None: all samples are keyframes.
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
        """Return the number of entries after the edit list: each edit copies the samples that it covers."""
        if not len(self.edits) or not len(self.durations):
            return 0.0
        length, begin = self.edits.T
        end = begin + length * self.timescale / max(1, movie_timescale)
        shown = self._samples_until(end + self.longest_delay) - self._samples_until(begin - self.longest_delay - 1)
        covered = np.where(length == 0, self.samples, shown + GROUPS_ADDED * self._longest_group())
        return float(covered.clip(0, self.samples).sum())

    def _longest_group(self) -> float:
        """Return the largest number of samples from one keyframe to the next."""
        if self.keyframes is None:
            return 1.0
        return float(np.diff(self.keyframes, prepend=0.0, append=float(self.samples)).max())

    def _samples_until(self, ticks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the number of samples that start at or before each time."""
        counts, steps = self.durations.T
        starts = np.concatenate(([0.0], np.cumsum(counts * steps)[:-1]))
        earlier = np.concatenate(([0.0], np.cumsum(counts)[:-1]))
        run = np.searchsorted(starts, ticks, side="right") - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(steps[run] > 0, np.floor((ticks - starts[run]) / steps[run]) + 1, counts[run])
        return np.where(run < 0, 0.0, earlier[run] + np.minimum(inside, counts[run]))


class Mp4Tables:
    """Sample tables of an MP4 file, and the number of index entries that they declare."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._tracks: list[Track] = []
        self._movie_timescale = 1
        self._fragments = 0
        self._boxes_read = 0

    def read(self, opened: OpenFile, start: int, end: int, depth: int = 0) -> None:
        """Read the boxes between two offsets and those inside them; `depth` is 0 for those of the file itself."""
        for kind, body, stop in self._boxes(opened, start, end):
            if kind == b"trak":
                self._tracks.append(Track())
            if kind in CONTAINERS and depth < MAX_DEPTH:
                self.read(opened, body, stop, depth + 1)
            elif kind == b"cmov" and depth < MAX_DEPTH:
                self._read_compressed(opened, body, stop, depth + 1)
            elif kind in (b"mvhd", b"trun") or self._tracks:
                self._read_table(kind, opened, body, stop)

    def _boxes(self, opened: OpenFile, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield kind, start and end of each box as FFmpeg does: size 1 means a 64-bit size, 0 all that follows."""
        while start + 8 <= end and self._boxes_read < MAX_BOXES:
            self._boxes_read += 1
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
        """Read the boxes of a compressed header."""
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

    def _read_table(self, kind: bytes, opened: OpenFile, body: int, stop: int) -> None:
        """Store the content of a box that affects the number of index entries."""
        head = opened.bytes_at(body, min(28, stop - body)).ljust(28, b"\0")
        long = head[0] == 1  # version 1 has 64-bit times
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
                track.durations[track.durations[:, 1] >= MIN_INVALID_DURATION, 1] = 1  # as FFmpeg does
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
        """Raise VideoError if the boxes declare more samples than a file of this size may have."""
        declared = self._fragments + sum(track.entries(self._movie_timescale) for track in self._tracks)
        allowed = min(MAX_SAMPLES, FREE_SAMPLES + self._size // BYTES_PER_SAMPLE)
        if declared > allowed:
            raise VideoError(
                f"{self._path} claims {declared:,.0f} samples, more than the {allowed:,} that a file of "
                f"{self._size:,} bytes may; it is damaged or made to exhaust memory"
            )


def _table(
    opened: OpenFile, body: int, stop: int, kind: str, columns: int, row_bytes: int | None = None
) -> NDArray[np.float64]:
    """Return the first columns of a table that is preceded by its row count, as far as the box extends."""
    width = np.dtype(kind).itemsize * columns
    row_bytes = row_bytes or width
    data = opened.bytes_at(body + 4, max(0, min(stop - body - 4, 4 + MAX_ROWS * row_bytes)))
    count = min(int.from_bytes(data[:4], "big"), max(0, len(data) - 4) // row_bytes)
    if not count:
        return np.zeros((0, columns))
    rows = np.frombuffer(data, np.uint8, count * row_bytes, 4).reshape(count, row_bytes)[:, :width]
    return np.ascontiguousarray(rows).view(kind).astype(np.float64)


def check_sample_counts(path: Path) -> None:
    """Raise VideoError if an MP4 file declares more samples than its size allows; accept any other file."""
    with open(path, "rb") as file:
        opened = OpenFile(file, os.fstat(file.fileno()).st_size, -1)
        tables = Mp4Tables(path, opened.size)
        tables.read(opened, 0, opened.size)
    tables.check()
