"""Detection of damaged video files: the duration that the container declares against the frames found."""

import re
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from aviot.video.container import NO_PTS, VideoContainer
from aviot.video.frames import Damage
from aviot.video.packets import PacketIndex
from aviot.video.structure import WALKERS, Ending, asf_seconds, ending_of, has_gap

MIN_LOST_FRAMES = 0.75
"""Frames that must be missing at the end of a truncated file: fewer can be the rounding of a duration."""

MIN_UNPROVEN_SHARE, MIN_UNPROVEN_SECONDS = 0.05, 0.2
"""Smallest loss, as a share of the declared duration and in seconds, if only the duration indicates a loss."""

GAP_STEPS, GAP_SECONDS, MAX_GAPS = 3, 0.2, 64
"""A step between frames is inspected if it exceeds this many median steps and this many seconds; at most 64 are."""

CLOCK_DELAY = 8
"""Packets before a long step that are inspected with it."""

AVI_UNKNOWN_FRAMES = 2**30 - 1
"""Frame count in an AVI file that was written to a pipe, where the header cannot be completed."""


class DeclaredDuration(NamedTuple):
    """Duration that a header declares, and the time on the stream's clock at which the video then ends."""

    seconds: float
    end: float


def find_damage(source: VideoContainer, index: PacketIndex, total: int) -> Damage | None:
    """Return the loss found in a file that has been read, None if there is none.

    Decoder errors are those of the packets that had to be decoded for the sampled frames; `total` is the number of
    pictures without those that turned out not to decode.
    """
    declared = _declared_duration(source, index)
    ending = ending_of(source.path, source.container.format.name, index.last_position)
    missing = _missing_in_gaps(source, index)
    if declared is not None:
        missing += _missing_at_end(source, index, ending, declared)
    errors = len(source.unclean)
    missing += _missing_pictures(index, total, errors)
    if not missing and not errors and (index.truncated or (declared is None and ending is Ending.TRUNCATED)):
        errors = 1  # the packet at which the file ends is incomplete
    if not missing and not errors:
        return None
    seconds = index.timeline.duration if declared is None else declared.seconds
    return Damage(round(max(seconds, missing), 3), round(missing, 3), errors)


def _declared_duration(source: VideoContainer, index: PacketIndex) -> DeclaredDuration | None:
    """Return the video stream's duration by the header; None if FFmpeg derives it from the data."""
    container, stream = source.container, source.stream
    start = float((stream.start_time or 0) * (stream.time_base or 0))
    seconds: float | None = None
    match container.format.name.split(",")[0]:
        case "matroska":
            seconds, start = _matroska_seconds(source), 0.0  # counted from the clock's zero
        case "flv":
            seconds, start = (container.duration or 0) / av.time_base, 0.0
        case "avi":
            known = source.rates and stream.frames < AVI_UNKNOWN_FRAMES
            seconds = stream.frames / float(source.rates[0]) if known else None
        case "asf":
            seconds = asf_seconds(source.path)
        case "mov" if stream.frames < len(index.pts) and not _has_segment_index(source, index):
            seconds = None  # fragments: FFmpeg adds up those that it finds
        case "mov" | "ivf" | "mxf":
            seconds = float((stream.duration or 0) * (stream.time_base or 0))
    return DeclaredDuration(seconds, start + seconds) if seconds else None


def _has_segment_index(source: VideoContainer, index: PacketIndex) -> bool:
    """Return whether a fragmented MP4 declares more than its fragments hold, as its segment index does."""
    stream = source.stream
    declared = float((stream.duration or 0) * (stream.time_base or 0))
    return declared > index.timeline.duration * (1 + MIN_UNPROVEN_SHARE)


def _matroska_seconds(source: VideoContainer) -> float | None:
    """Return the duration of the track if it has a tag for it, else of the file, whose audio may be longer."""
    whole = (source.container.duration or 0) / av.time_base
    found = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", source.stream.metadata.get("DURATION", ""))
    if found is None:
        return whole or None
    hours, minutes, seconds = map(float, found.groups())
    return min(whole or float("inf"), 3600 * hours + 60 * minutes + seconds)


def _missing_at_end(source: VideoContainer, index: PacketIndex, ending: Ending, declared: DeclaredDuration) -> float:
    """Return the seconds that are missing at the end.

    Without proof from the structure the last frame may simply be shown for long, so the loss must be considerable and
    no frame count may contradict it.
    """
    missing = min(declared.end - index.end, declared.seconds)
    if ending is Ending.TRUNCATED:
        return missing if missing * index.timeline.fps > MIN_LOST_FRAMES else 0.0
    complete = 0 < source.stream.frames <= len(index.pts)
    if ending is Ending.COMPLETE or complete:
        return 0.0
    return missing if missing > max(MIN_UNPROVEN_SHARE * declared.seconds, MIN_UNPROVEN_SECONDS) else 0.0


def _missing_pictures(index: PacketIndex, total: int, errors: int) -> float:
    """Return the seconds of pictures that did not decode: at most one per error, as a packet may be half a picture."""
    lost = min(len(index.frames) - total, errors)
    return index.timeline.duration * lost / len(index.frames) if lost > 0 else 0.0


def _missing_in_gaps(source: VideoContainer, index: PacketIndex) -> float:
    """Return the seconds missing between packets, for containers whose demuxer skips damage without an error.

    A long step between two frames is a gap if the bytes between them are not elements of the container.
    """
    container = source.container.format.name
    if container.split(",")[0] not in WALKERS or len(index.pts) < 3 or index.pts.min() == NO_PTS:
        return 0.0
    reached = np.maximum.accumulate(index.pts)[:-1]
    following = np.minimum.accumulate(index.pts[::-1])[::-1][1:]
    steps = (following - reached) * float(source.stream.time_base or 0)
    usual = float(np.median(np.diff(np.sort(index.pts)))) * float(source.stream.time_base or 0)
    long = np.flatnonzero(steps > max(GAP_STEPS * usual, GAP_SECONDS))
    gaps = [
        steps[place] - usual
        for place in long[np.argsort(steps[long])[::-1][:MAX_GAPS]]
        if has_gap(source.path, container, *_around(index.positions, int(place)))
    ]
    return float(sum(gaps))


def _around(positions: NDArray[np.int64], place: int) -> tuple[int, int]:
    """Return the byte range to inspect: demuxers may correct their clock a few packets after the damage."""
    return int(positions[max(0, place - CLOCK_DELAY)]), int(positions[place + 1])
