"""Messages between a process that wants a video and the one that reads it: plain JSON, and pixels as plain bytes.

The reader may have been taken over by the file that it reads, so nothing that it sends is believed before it is
checked, and nothing is ever unpickled.
"""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aviot.video.result import Damage, Video

PREFIX_BYTES = 16
"""Length of a reply's header and of its pixels, eight bytes each."""

MAX_HEADER_BYTES = 2**26
"""Longest header: two million frames with their times."""


class BadReply(Exception):
    """A reply that no honest reader sends."""


def pack_prefix(header: bytes, pixels: int) -> bytes:
    """Return what comes before a reply."""
    return len(header).to_bytes(8, "big") + pixels.to_bytes(8, "big")


def unpack_prefix(prefix: bytes, most: int) -> tuple[int, int]:
    """Return the bytes of a reply's header and of its pixels, of which there may be `most`."""
    header, pixels = int.from_bytes(prefix[:8], "big"), int.from_bytes(prefix[8:], "big")
    if header > MAX_HEADER_BYTES or pixels > most:
        raise BadReply
    return header, pixels


def describe_video(video: Video) -> dict[str, Any]:
    """Return a video without its pixels."""
    return {
        "shape": list(video.frames.shape),
        "indices": list(video.indices),
        "times": list(video.times),
        "duration": video.duration,
        "fps": video.fps,
        "total": video.total,
        "name": video.name,
        "comment": video.comment,
        "damage": None if video.damage is None else asdict(video.damage),
    }


def read_header(data: bytes) -> dict[str, Any]:
    """Return a reply's header."""
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadReply from error
    if not isinstance(header, dict):
        raise BadReply
    return header


def rebuild_video(described: Any, pixels: NDArray[np.uint8]) -> Video:
    """Return the video of a description and its pixels."""
    try:
        shape = tuple(map(_whole, described["shape"]))
        indices, times = tuple(map(_whole, described["indices"])), tuple(map(_number, described["times"]))
        damage = described["damage"]
        video = Video(
            frames=pixels.reshape(shape),
            indices=indices,
            times=times,
            duration=_number(described["duration"]),
            fps=_number(described["fps"]),
            total=_whole(described["total"]),
            name=_text(described["name"]),
            comment=_text(described["comment"]),
            damage=None if damage is None else _damage(damage),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadReply from error
    if math.prod(shape) != pixels.size or not len(indices) == len(times) == shape[0]:
        raise BadReply
    return video


def _damage(said: Any) -> Damage:
    claimed, missing = _number(said["claimed_seconds"]), _number(said["missing_seconds"])
    return Damage(claimed, missing, _whole(said["decoder_errors"]))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(value)
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
