"""Detection of damaged video files: what the container claims against what was read and decoded."""

import re
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from aviot.video.container import NO_PTS, Film
from aviot.video.packets import PacketIndex
from aviot.video.result import Damage
from aviot.video.structure import WALKERS, Ending, asf_seconds, ending_of, has_hole

SHORTEST_LOSS = 0.75
"""Frames that must be missing at the end of a file that is cut: less can be the rounding of a duration."""

UNPROVEN_SHARE, UNPROVEN_SECONDS = 0.05, 0.2
"""Least loss, of the claim and in seconds, where only the duration says that the end is missing."""

HOLE_STEPS, HOLE_SECONDS, MAX_HOLES = 3, 0.2, 64
"""A step between frames is inspected if it is longer than so many usual ones and than so long; at most so many are."""


CLOCK_DELAY = 8
"""Packets before a long step that are inspected with it."""

AVI_UNKNOWN_FRAMES = 2**30 - 1
"""Frame count in an AVI file that was written to a pipe, where the header cannot be completed."""


class Claim(NamedTuple):
    """Duration that a header declares, and the time on the stream's clock at which the video then ends."""

    seconds: float
    end: float


def find_damage(film: Film, index: PacketIndex, total: int) -> Damage | None:
    """Return what is missing or broken in a file that has been read, None if nothing is known to be.

    Errors are those of the packets that had to be decoded for the chosen frames; `total` is the number of pictures that
    are left without those that turned out not to decode.
    """
    claim = _claim(film, index)
    ending = ending_of(film.path, film.container.format.name, index.last_position)
    missing = _missing_holes(film, index)
    if claim is not None:
        missing += _missing_end(film, index, ending, claim)
    errors = len(film.unclean)
    missing += _missing_pictures(index, total, errors)
    if not missing and not errors and (index.broke_off or (claim is None and ending is Ending.CUT)):
        errors = 1  # the packet at which the file ends is incomplete
    if not missing and not errors:
        return None
    claimed = index.timeline.duration if claim is None else claim.seconds
    return Damage(round(max(claimed, missing), 3), round(missing, 3), errors)


def _claim(film: Film, index: PacketIndex) -> Claim | None:
    """Return what the header says about the video stream; None where FFmpeg derives the duration from the data."""
    container, stream = film.container, film.stream
    start = float((stream.start_time or 0) * (stream.time_base or 0))
    seconds: float | None = None
    match container.format.name.split(",")[0]:
        case "matroska":
            seconds, start = _matroska_seconds(film), 0.0  # counted from the clock's zero
        case "flv":
            seconds, start = (container.duration or 0) / av.time_base, 0.0
        case "avi":
            known = film.rates and stream.frames < AVI_UNKNOWN_FRAMES
            seconds = stream.frames / float(film.rates[0]) if known else None
        case "asf":
            seconds = asf_seconds(film.path)
        case "mov" if stream.frames < len(index.pts) and not _has_segment_index(film, index):
            seconds = None  # fragments: FFmpeg adds up those that it finds
        case "mov" | "ivf" | "mxf":
            seconds = float((stream.duration or 0) * (stream.time_base or 0))
    return Claim(seconds, start + seconds) if seconds else None


def _has_segment_index(film: Film, index: PacketIndex) -> bool:
    """Return whether a fragmented MP4 declares more than its fragments hold, as its index of segments does."""
    stream = film.stream
    declared = float((stream.duration or 0) * (stream.time_base or 0))
    return declared > index.timeline.duration * (1 + UNPROVEN_SHARE)


def _matroska_seconds(film: Film) -> float | None:
    """Return the duration of the track if it has a tag for it, else of the file, whose sound may be longer."""
    whole = (film.container.duration or 0) / av.time_base
    found = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", film.stream.metadata.get("DURATION", ""))
    if found is None:
        return whole or None
    hours, minutes, seconds = map(float, found.groups())
    return min(whole or float("inf"), 3600 * hours + 60 * minutes + seconds)


def _missing_end(film: Film, index: PacketIndex, ending: Ending, claim: Claim) -> float:
    """Return the seconds that are missing at the end.

    Without proof from the structure the last frame may just be shown for long, so the loss must be considerable and
    no count of frames may contradict it.
    """
    missing = min(claim.end - index.end, claim.seconds)
    if ending is Ending.CUT:
        return missing if missing * index.timeline.fps > SHORTEST_LOSS else 0.0
    complete = 0 < film.stream.frames <= len(index.pts)
    if ending is Ending.WHOLE or complete:
        return 0.0
    return missing if missing > max(UNPROVEN_SHARE * claim.seconds, UNPROVEN_SECONDS) else 0.0


def _missing_pictures(index: PacketIndex, total: int, errors: int) -> float:
    """Return the seconds of pictures that did not decode: no more than errors, as a packet may be half a picture."""
    lost = min(len(index.frames) - total, errors)
    return index.timeline.duration * lost / len(index.frames) if lost > 0 else 0.0


def _missing_holes(film: Film, index: PacketIndex) -> float:
    """Return the seconds missing between packets, for containers whose demuxer skips damage without an error.

    A long step between two frames is a hole if the bytes between them are not elements of the container.
    """
    container = film.container.format.name
    if container.split(",")[0] not in WALKERS or len(index.pts) < 3 or index.pts.min() == NO_PTS:
        return 0.0
    reached = np.maximum.accumulate(index.pts)[:-1]
    following = np.minimum.accumulate(index.pts[::-1])[::-1][1:]
    steps = (following - reached) * float(film.stream.time_base or 0)
    usual = float(np.median(np.diff(np.sort(index.pts)))) * float(film.stream.time_base or 0)
    long = np.flatnonzero(steps > max(HOLE_STEPS * usual, HOLE_SECONDS))
    holes = [
        steps[place] - usual
        for place in long[np.argsort(steps[long])[::-1][:MAX_HOLES]]
        if has_hole(film.path, container, *_around(index.positions, int(place)))
    ]
    return float(sum(holes))


def _around(positions: NDArray[np.int64], place: int) -> tuple[int, int]:
    """Return the positions to look between: demuxers may correct their clock a few packets after the damage."""
    return int(positions[max(0, place - CLOCK_DELAY)]), int(positions[place + 1])
