"""Keyframes at which a decoder forgets everything before them, told from the packets' bytes.

A keyframe need not be one: with open groups of pictures, or gradual refresh, frames after it refer to frames before it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import av

CLEAN_KEYFRAMES = frozenset({"vp8", "vp9"})
"""Codecs whose every keyframe is one."""

MAX_UNITS = 64
"""NAL units of a keyframe that are looked through for its first picture."""


class Units(NamedTuple):
    """The NAL units of a codec: where their types are, which types are pictures, and which of those begin anew (IDR).

    `length_at` is the byte of the decoder configuration record whose last two bits are the size of a length, less one.
    """

    mask: int
    shift: int
    pictures: range
    fresh: tuple[int, ...]
    length_at: int


UNITS = {
    "h264": Units(0x1F, 0, range(1, 6), (5,), 4),
    "hevc": Units(0x7E, 1, range(32), (19, 20), 21),
}


def begins_anew(codec: str, configuration: bytes, packet: av.Packet) -> bool:
    """Return whether nothing from a keyframe on refers to anything before it; False if that is not known."""
    if codec in CLEAN_KEYFRAMES:
        return True
    units = UNITS.get(codec)
    if units is None or len(configuration) <= units.length_at or configuration[0] != 1:
        return False  # units between start codes, as in a transport stream, are not read
    size = 1 + (configuration[units.length_at] & 3)
    for header in _headers(memoryview(packet), size):
        kind = (header & units.mask) >> units.shift
        if kind in units.pictures:
            return kind in units.fresh
    return False


def _headers(data: memoryview, size: int) -> Iterator[int]:
    """Yield the first byte of each NAL unit of a packet whose units follow their lengths of `size` bytes."""
    position = 0
    for _ in range(MAX_UNITS):
        if position + size >= len(data):
            return
        yield data[position + size]
        position += size + int.from_bytes(data[position : position + size], "big")
