"""Structure of container formats, inspected for the end of a file and for gaps between packets."""

import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO

CLUSTER, BLOCK_GROUP, BLOCK, SIMPLE_BLOCK, SEGMENT, EBML = 0x1F43B675, 0xA0, 0xA1, 0xA3, 0x18538067, 0x1A45DFA3
ENTERED = frozenset({CLUSTER, BLOCK_GROUP, SEGMENT})
"""Matroska elements whose children are parsed; every other known element is skipped as a whole."""

ELEMENTS = ENTERED | {
    *(BLOCK, SIMPLE_BLOCK, EBML, 0xEC, 0xBF),  # blocks, headers, void, checksum
    *(0x114D9B74, 0x1549A966, 0x1654AE6B, 0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367),  # of a segment
    *(0xE7, 0x5854, 0xA7, 0xAB, 0xAF),  # of a cluster
    *(0x9B, 0xFB, 0x75A1, 0xFD, 0xFA, 0xA4, 0x75A2, 0x8E, 0xC8),  # of a block group
}

MAX_STEPS, MAX_PAGES, MAX_GIF_PICTURE = 200_000, 1_000, 2**25
"""Elements, Ogg pages and bytes after which inspection stops: a malicious file could take hours."""

OGG_PAGE = 65_307
"""Size in bytes of the largest Ogg page."""

TS_PACKETS = ((188, 0), (192, 4), (204, 0))
"""Size of an MPEG-TS packet and offset of its sync byte: plain, with timestamps (M2TS), with parity bytes."""

OGG_START = b"OggS\0"
REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

PES_START = re.compile(rb"\x00\x00\x01[\xbc-\xff]")

AVI_UNKNOWN_SIZE = 2**31
"""Smallest RIFF size that, like zero, is a placeholder in files that were written to a pipe."""

GIF_PADDING = 16
"""Zero bytes between two blocks of a GIF that count as damage; some encoders write one too many."""

ASF_HEADER = 65_536
ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


class Ending(Enum):
    """State of a file's end: complete, inside an element, or unknown from the structure."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class OpenFile:
    """A file to inspect; `last` is the byte offset of the last video packet, -1 if the demuxer does not tell."""

    file: BinaryIO
    size: int
    last: int

    def bytes_at(self, position: int, count: int) -> bytes:
        """Return up to `count` bytes from `position`."""
        self.file.seek(position)
        return self.file.read(count)


def ending_of(path: str | os.PathLike[str], container: str, last: int) -> Ending:
    """Return the state of a file's end; `container` is FFmpeg's name of the format."""
    inspect = INSPECTORS.get(container.split(",")[0])
    if inspect is None:
        return Ending.UNKNOWN
    with open(path, "rb") as file:
        return inspect(OpenFile(file, os.fstat(file.fileno()).st_size, last))


def has_gap(path: str | os.PathLike[str], container: str, first: int, second: int) -> bool:
    """Return whether bytes between two packets, at these offsets, are not valid elements of the container."""
    walk = WALKERS[container.split(",")[0]]
    with open(path, "rb") as file:
        opened = OpenFile(file, os.fstat(file.fileno()).st_size, first)
        return not walk(opened, first, second)


def asf_seconds(path: str | os.PathLike[str]) -> float | None:
    """Return the duration in the header of an ASF file, which FFmpeg discards if the file is truncated."""
    with open(path, "rb") as file:
        properties = _asf_properties(file.read(ASF_HEADER))
    if properties is None:
        return None
    return int.from_bytes(properties[64:72], "little") / 1e7 - int.from_bytes(properties[80:88], "little") / 1e3


def _matroska(opened: OpenFile) -> Ending:
    head = _element(opened, 0)
    segment = None if head is None or head[2] is None else _element(opened, head[2])
    if segment is None or segment[0] != SEGMENT or opened.last < 0:
        return Ending.UNKNOWN
    stop = opened.size if segment[2] is None else segment[2]
    if stop > opened.size:
        return Ending.TRUNCATED
    return Ending.COMPLETE if _walk_matroska(opened, opened.last, stop) else Ending.TRUNCATED


def _walk_matroska(opened: OpenFile, block: int, stop: int) -> bool:
    """Return whether the elements after a block lead to `stop`; False at other bytes, or if one extends past it.

    A block's position is the offset of its data.
    """
    position = _block_end(opened, block)
    for _ in range(MAX_STEPS):
        if position >= stop:
            return position == stop
        element = _element(opened, position)
        if element is None:
            return False
        kind, start, end = element
        if start == stop:
            return True
        position = start if kind in ENTERED or end is None else end
    return True


def _element(opened: OpenFile, position: int) -> tuple[int, int, int | None] | None:
    """Return an element's ID and the start and end of its data (None: unknown), or None for any other bytes."""
    data = opened.bytes_at(position, 12)
    width = 9 - data[0].bit_length() if data else 9
    kind = int.from_bytes(data[:width], "big")
    if width > 4 or kind not in ELEMENTS or len(data) <= width or not data[width]:
        return None
    length = 9 - data[width].bit_length()
    if len(data) < width + length:
        return None
    start = position + width + length
    size = _vint(data[width : width + length])
    return kind, start, None if size is None else start + size


def _vint(data: bytes) -> int | None:
    """Return an EBML number without its length marker; None for "unknown"."""
    limit = 1 << (7 * len(data))
    value = int.from_bytes(data, "big") & (limit - 1)
    return None if value == limit - 1 else value


def _block_end(opened: OpenFile, start: int) -> int:
    """Return the end of the block whose data starts here: its size is stored before the data, after its ID."""
    before = opened.bytes_at(max(0, start - 9), min(9, start))
    for length in range(1, len(before)):
        kind, number = before[-length - 1], before[-length:]
        if kind in (BLOCK, SIMPLE_BLOCK) and 9 - number[0].bit_length() == length and (size := _vint(number)):
            return start + size
    return start


def _mov(opened: OpenFile) -> Ending:
    """Follow the chain of boxes. Data after the last known box is ignored: cameras append some of their own."""
    position = 0
    for _ in range(MAX_STEPS):
        if position + 8 > opened.size:
            return Ending.COMPLETE
        head = opened.bytes_at(position, 16)
        size, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if size == 1:
            size = int.from_bytes(head[8:16], "big")
        if not kind.isalnum() or size < 8:
            return Ending.UNKNOWN
        position += size
        if position > opened.size:
            return Ending.TRUNCATED if kind in (b"mdat", b"moof", b"moov") else Ending.UNKNOWN
    return Ending.UNKNOWN


def _avi(opened: OpenFile) -> Ending:
    position = 0
    while opened.bytes_at(position, 4) == b"RIFF":  # files over 1 GB have several
        size = int.from_bytes(opened.bytes_at(position + 4, 4), "little")
        if not 0 < size < AVI_UNKNOWN_SIZE:
            return Ending.UNKNOWN
        position += 8 + size
    return Ending.TRUNCATED if position > opened.size else Ending.UNKNOWN


def _flv(opened: OpenFile) -> Ending:
    """Check the last tag: every tag is followed by its size, so the last four bytes lead back to it."""
    size = int.from_bytes(opened.bytes_at(max(0, opened.size - 4), 4), "big")
    start = opened.size - 4 - size
    if size < 11 or start < 0:
        return Ending.TRUNCATED
    stored = int.from_bytes(opened.bytes_at(start + 1, 3), "big")
    return Ending.COMPLETE if stored + 11 == size else Ending.TRUNCATED


def _mpegts(opened: OpenFile) -> Ending:
    head = opened.bytes_at(0, 3 * 204)
    for size, sync in TS_PACKETS:
        if all(head[sync + size * i : sync + size * i + 1] == b"G" for i in range(3)):
            last = opened.bytes_at((opened.size // size - 1) * size + sync, 1)
            return Ending.TRUNCATED if opened.size % size or last != b"G" else Ending.UNKNOWN
    return Ending.UNKNOWN


def _mpeg(opened: OpenFile) -> Ending:
    """Check the last packet of a program stream; codes from 0xBC on do not occur inside video."""
    tail = opened.bytes_at(max(0, opened.size - 2**16 - 6), 2**16 + 6)
    starts = [found.end() for found in PES_START.finditer(tail)]
    if not starts:
        return Ending.UNKNOWN
    length = int.from_bytes(tail[starts[-1] : starts[-1] + 2], "big")
    return Ending.TRUNCATED if starts[-1] + 2 + length > len(tail) else Ending.UNKNOWN


def _ogg(opened: OpenFile) -> Ending:
    begin = max(0, opened.size - OGG_PAGE)
    found = opened.bytes_at(begin, OGG_PAGE).rfind(OGG_START)
    if found < 0:
        return Ending.TRUNCATED
    return Ending.UNKNOWN if _ogg_page(opened, begin + found) == opened.size else Ending.TRUNCATED


def _walk_ogg(opened: OpenFile, position: int, stop: int) -> bool:
    for _ in range(MAX_PAGES):
        if position >= stop:
            return position == stop
        following = _ogg_page(opened, position)
        if following is None:
            return False
        position = following
    return True


def _ogg_page(opened: OpenFile, start: int) -> int | None:
    """Return the end of the page that starts here, None if it is incomplete or its checksum is wrong."""
    data = opened.bytes_at(start, OGG_PAGE)
    if not data.startswith(OGG_START) or len(data) < 27:
        return None
    end = 27 + data[26] + sum(data[27 : 27 + data[26]])
    if end > len(data):
        return None
    # zlib implements this polynomial with the opposite bit order.
    page = (data[:22] + bytes(4) + data[26:end]).translate(REVERSED_BITS)
    checksum = f"{zlib.crc32(page, 0xFFFFFFFF) ^ 0xFFFFFFFF:032b}"[::-1]
    return start + end if int(checksum, 2) == int.from_bytes(data[22:26], "little") else None


def _gif(opened: OpenFile) -> Ending:
    """Follow the blocks of the last picture to the trailer."""
    if opened.last < 0 or opened.size - opened.last > MAX_GIF_PICTURE:
        return Ending.UNKNOWN
    data = opened.bytes_at(opened.last, opened.size - opened.last)
    position = 0
    if data[:3] == b"GIF":
        position = 13 + _colour_table(data[10:11])
    while position < len(data):
        kind = data[position]
        if kind == 0x3B:
            return Ending.COMPLETE
        if kind == 0x2C:
            position += 11 + _colour_table(data[position + 9 : position + 10])
        elif kind == 0x21:
            position += 2
        elif kind or data[position:].startswith(bytes(GIF_PADDING)):
            return Ending.TRUNCATED
        while position < len(data) and data[position]:
            position += 1 + data[position]
        position += 1
    return Ending.TRUNCATED if position > len(data) else Ending.UNKNOWN


def _colour_table(flags: bytes) -> int:
    """Return the size in bytes of the GIF colour table that these flags announce."""
    return 3 << ((flags[0] & 7) + 1) if flags and flags[0] & 0x80 else 0


def _asf(opened: OpenFile) -> Ending:
    properties = _asf_properties(opened.bytes_at(0, ASF_HEADER))
    declared = 0 if properties is None else int.from_bytes(properties[40:48], "little")
    if not declared:
        return Ending.UNKNOWN
    return Ending.TRUNCATED if declared > opened.size else Ending.COMPLETE


def _asf_properties(head: bytes) -> bytes | None:
    """Return the file properties object of an ASF header; None for a broadcast, whose fields are not valid."""
    start = head.find(ASF_FILE_PROPERTIES)
    properties = head[start : start + 104]
    return properties if start >= 0 and len(properties) == 104 and not properties[88] & 1 else None


INSPECTORS: dict[str, Callable[[OpenFile], Ending]] = {
    "matroska": _matroska,
    "mov": _mov,
    "avi": _avi,
    "flv": _flv,
    "mpegts": _mpegts,
    "mpeg": _mpeg,
    "ogg": _ogg,
    "gif": _gif,
    "asf": _asf,
}

WALKERS: dict[str, Callable[[OpenFile, int, int], bool]] = {"matroska": _walk_matroska, "ogg": _walk_ogg}
"""Walkers for containers whose demuxer skips damage without an error."""
