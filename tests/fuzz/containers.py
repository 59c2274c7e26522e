"""Mutations that know the structure of a video container: MP4 boxes, Matroska elements, AVI chunks, GIF blocks."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from fuzz.mutate import mutate_number, nasty_number

ENTERED = frozenset(
    {
        b"moov",
        b"trak",
        b"mdia",
        b"minf",
        b"stbl",
        b"edts",
        b"dinf",
        b"mvex",
        b"moof",
        b"traf",
        b"udta",
        b"LIST",
        b"RIFF",
    }
)

FIELDS: dict[bytes, tuple[tuple[int, int], ...]] = {
    b"mvhd": ((0, 1), (12, 4), (16, 4)),  # version, time scale, duration
    b"tkhd": ((0, 1), (12, 4), (20, 4), (40, 4), (44, 4), (76, 4), (80, 4)),  # track, duration, matrix, width, height
    b"mdhd": ((0, 1), (12, 4), (16, 4)),
    b"hdlr": ((8, 4),),
    b"elst": ((0, 1), (4, 4), (8, 4), (12, 4), (16, 4)),  # entries; duration, media time, rate of the first
    b"stts": ((4, 4), (8, 4), (12, 4)),  # entries; samples and delta of the first
    b"ctts": ((0, 1), (4, 4), (8, 4), (12, 4)),
    b"stss": ((4, 4), (8, 4)),
    b"stsz": ((4, 4), (8, 4), (12, 4)),  # size of all, samples, size of the first
    b"stsc": ((4, 4), (8, 4), (12, 4), (16, 4), (20, 4)),
    b"stco": ((4, 4), (8, 4)),
    b"stsd": ((4, 4), (8, 4), (12, 4), (40, 2), (42, 2), (90, 4), (98, 4)),  # entries, width, height, avcC
    b"mfhd": ((4, 4),),
    b"tfhd": ((0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 4)),
    b"tfdt": ((0, 1), (4, 4), (8, 4)),
    b"trun": ((0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 4)),  # flags, samples, offset, first
    b"trex": ((8, 4), (12, 4), (16, 4), (20, 4)),
    b"mehd": ((4, 4),),
    b"sidx": ((8, 4), (12, 4), (22, 2)),
    b"avih": tuple((4 * place, 4) for place in range(10)),  # µs per frame, …, frames, streams, width, height
    b"strh": ((0, 4), (4, 4), *((4 * place, 4) for place in range(5, 12))),  # scale, rate, start, length, sizes
    b"strf": ((0, 4), (4, 4), (8, 4), (12, 2), (14, 2), (16, 4), (20, 4)),  # size, width, height, planes, bits, codec
    b"idx1": ((0, 4), (4, 4), (8, 4), (12, 4)),
}
"""Offsets in a box's payload and widths of the numbers that readers trust."""

MANY = (100_000, 1_000_000, 30_000_000, 2**31 - 1, 2**32 - 1)

EBML_ENTERED = frozenset(
    {0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0, 0x1F43B675, 0xA0, 0x114D9B74, 0x4DBB, 0x1C53BB6B, 0xBB, 0xB7}
)
EBML_NUMBERS = frozenset(
    {0x2AD7B1, 0x4489, 0xB0, 0xBA, 0x54B0, 0x54BA, 0x23E383, 0xE7, 0xD7, 0x83, 0x9A, 0x86, 0x55EE, 0x23314F, 0x53AC}
)
"""Time scale, duration, widths, heights, frame duration, timestamps, track number and type, codec, and others."""


@dataclass(frozen=True)
class Part:
    """A box, chunk or element: where its header, its size field and its payload stand in the file."""

    kind: bytes
    start: int
    size_at: int
    size_width: int
    payload: int
    end: int


def boxes(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Part]:
    """Yield the boxes of an MP4 file, those inside others too."""
    end = len(data) if end is None else end
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        stop = min(end, start + max(8, size))
        yield Part(kind, start, start, 4, start + 8, stop)
        if kind in ENTERED:
            yield from boxes(data, start + 8, stop)
        start = stop


def chunks(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Part]:
    """Yield the chunks of an AVI file, those inside lists too."""
    end = len(data) if end is None else end
    while start + 8 <= end:
        kind, size = struct.unpack_from("<4sI", data, start)
        stop = min(end, start + 8 + size + size % 2)
        yield Part(kind, start, start + 4, 4, start + 8, stop)
        if kind in ENTERED:
            yield from chunks(data, start + 12, stop)
        start = stop


def elements(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Part]:
    """Yield the elements of a Matroska file, those inside others too."""
    end = len(data) if end is None else end
    while start + 2 <= end and data[start]:
        width = 9 - data[start].bit_length()
        size_at = start + width
        if size_at >= end or not data[size_at]:
            return
        length = 9 - data[size_at].bit_length()
        size = int.from_bytes(data[size_at : size_at + length], "big") & ((1 << 7 * length) - 1)
        payload = size_at + length
        stop = end if size == (1 << 7 * length) - 1 else min(end, payload + size)
        kind = data[start:size_at]
        yield Part(kind, start, size_at, length, payload, stop)
        if int.from_bytes(kind, "big") in EBML_ENTERED:
            yield from elements(data, payload, stop)
        start = max(stop, payload)


def mutate_mp4(rng: Random, data: bytes) -> tuple[bytes, str]:
    """Change a number that the boxes of an MP4 file claim, a box's size, or the order of boxes."""
    found = list(boxes(data))
    if rng.random() < 0.12:
        return _claim_samples(rng, bytearray(data), found)
    return _mutate_parts(rng, data, found, "big")


def mutate_avi(rng: Random, data: bytes) -> tuple[bytes, str]:
    """Change a number that the chunks of an AVI file claim, a chunk's size, or the order of chunks."""
    return _mutate_parts(rng, data, list(chunks(data)), "little")


def mutate_matroska(rng: Random, data: bytes) -> tuple[bytes, str]:
    """Change a number of a Matroska file, an element's size, or the order of elements."""
    found = list(elements(data))
    known = [part for part in found if int.from_bytes(part.kind, "big") in EBML_NUMBERS]
    if known and rng.random() < 0.5:
        part, changed = rng.choice(known), bytearray(data)
        width = part.end - part.payload
        value = rng.choice((nasty_number(rng, width), *_floats(width))) if width else 0
        changed[part.payload : part.end] = value.to_bytes(width, "big")
        return bytes(changed), f"element {part.kind.hex()} is {value}"
    return _mutate_parts(rng, data, found, "big")


def _floats(width: int) -> tuple[int, ...]:
    """Return the bits of NaN, infinity, a huge and a tiny number."""
    form = {4: ">f", 8: ">d"}.get(width)
    values = (float("nan"), float("inf"), 1e38, -1.0, 1e-38)
    return tuple(int.from_bytes(struct.pack(form, value), "big") for value in values) if form else ()


def _mutate_parts(rng: Random, data: bytes, found: list[Part], order: str) -> tuple[bytes, str]:
    changed = bytearray(data)
    part, other = rng.choice(found), rng.choice(found)
    name = part.kind.decode("latin-1") if part.kind.isalnum() else part.kind.hex()
    match rng.randrange(8):
        case 0:
            marker = 1 << 7 * part.size_width if order == "big" and part.size_width != 4 else 0
            value = nasty_number(rng, part.size_width) | marker
            value = min(value, 256**part.size_width - 1)
            changed[part.size_at : part.size_at + part.size_width] = value.to_bytes(part.size_width, order)  # type: ignore[arg-type]
            return bytes(changed), f"size of {name} is {value}"
        case 1:
            del changed[part.start : part.end]
            return bytes(changed), f"drop {name}"
        case 2:
            changed[part.end : part.end] = changed[part.start : part.end] * rng.choice((1, 1, 50))
            return bytes(changed), f"repeat {name}"
        case 3:
            changed[other.start : other.start] = data[part.start : part.end]
            return bytes(changed), f"copy {name} to {other.start}"
        case 4:
            return mutate_number(rng, changed, part.payload, part.end, 4)
        case _:
            return _claim(rng, changed, found, order)


def _claim(rng: Random, data: bytearray, found: list[Part], order: str) -> tuple[bytes, str]:
    """Overwrite one to three of the numbers that readers trust."""
    done = []
    known = [part for part in found if part.kind in FIELDS]
    for _ in range(rng.choice((1, 1, 2, 3)) if known else 0):
        part = rng.choice(known)
        offset, width = rng.choice(FIELDS[part.kind])
        if part.payload + offset + width <= part.end:
            value = nasty_number(rng, width)
            place = part.payload + offset
            data[place : place + width] = value.to_bytes(width, order)  # type: ignore[arg-type]
            done.append(f"{part.kind.decode('latin-1')}+{offset} is {value}")
    return bytes(data), ", ".join(done) or "unchanged"


def _claim_samples(rng: Random, data: bytearray, found: list[Part]) -> tuple[bytes, str]:
    """Claim millions of samples in few bytes: all of one size and of one duration, and all in one chunk."""
    count, size, delta = rng.choice(MANY), rng.choice((0, 1, 1, 100, 2**31)), rng.choice((0, 1, 512, 2**31 - 1))
    claims = {b"stsz": (4, (size, count)), b"stts": (4, (1, count, delta)), b"stsc": (4, (1, 1, count, 1))}
    for part in found:
        if part.kind in claims:
            offset, values = claims[part.kind]
            packed = struct.pack(f">{len(values)}I", *values)
            if part.payload + offset + len(packed) <= part.end:
                data[part.payload + offset : part.payload + offset + len(packed)] = packed
    return bytes(data), f"claim {count} samples of {size} bytes and {delta} ticks"


def mutate_gif(rng: Random, data: bytes) -> tuple[bytes, str]:
    """Change the sizes that a GIF claims, or append pictures of one pixel on a large canvas."""
    changed = bytearray(data)
    wide, high = (rng.choice((0, 1, 64, 1000, 8192, 16_384, 65_535)) for _ in range(2))
    if rng.random() < 0.4:
        count = rng.choice((1, 30, 300, 2000))
        return many_pixels(wide, high, count), f"{count} pictures of one pixel on {wide}x{high}"
    places = [6, *(place + 5 for place in range(13, len(data) - 9) if data[place : place + 5] == b"\x2c\0\0\0\0")]
    place = rng.choice(places)
    struct.pack_into("<HH", changed, place, wide, high)
    return bytes(changed), f"size at {place} is {wide}x{high}"


def many_pixels(wide: int, high: int, count: int) -> bytes:
    """Return a small GIF of a large canvas on which each picture changes one pixel."""
    head = b"GIF89a" + struct.pack("<HHBBB", wide, high, 0x80 | 0x70, 0, 0) + bytes(3) + b"\xff" * 3
    picture = b"\x21\xf9\x04\x04\x05\0\0\0" + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01\0"
    return head + picture * count + b"\x3b"


STRUCTURED: dict[str, Callable[[Random, bytes], tuple[bytes, str]]] = {
    "mp4": mutate_mp4,
    "mov": mutate_mp4,
    "m4v": mutate_mp4,
    "mkv": mutate_matroska,
    "webm": mutate_matroska,
    "avi": mutate_avi,
    "gif": mutate_gif,
}
"""The mutation of each container's structure, by suffix."""
