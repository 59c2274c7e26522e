"""Frames from a video file."""

import logging
from array import array
from collections.abc import Iterator
from itertools import compress
from pathlib import Path

import av
import numpy as np

from aviot.video.container import Film
from aviot.video.decode import Seeker, SeekError
from aviot.video.errors import VideoError
from aviot.video.packets import NO_PTS, PacketIndex, constant_timeline, index_packets
from aviot.video.picture import Developer
from aviot.video.result import Video
from aviot.video.sample import Sampling
from aviot.video.shelf import Shelf, Transform
from aviot.video.timeline import Timeline, trustworthy

ROUNDS = 3
"""Times that frames are chosen anew because some would not decode, before the whole file is decoded to see which do."""

CUT_OFF = 1.05  # times as long as what can be read: what a whole file does not claim to be

logger = logging.getLogger(__name__)


def read_file(path: Path, sampling: Sampling, transform: Transform | None) -> Video:
    """Index a file, choose, and decode what was chosen."""
    with Film(path) as film:
        index = index_packets(film)
        video = _read_seeking(film, index, sampling, transform) if index.timed else None
        video = video or _read_counting(film, index, sampling, transform)
        _tell_if_cut_off(film, index, video)
        return video


def _tell_if_cut_off(film: Film, index: PacketIndex, video: Video) -> None:
    """Warn where the file's head tells of more than follows it.

    Pictures alone do not say so: of a trimmed video some stay in the file and are not for showing. Nor do seconds: its
    sound may be longer.
    """
    seconds = (film.container.duration or 0) / av.time_base
    if film.stream.frames > len(index.pts) and seconds > CUT_OFF * video.duration:
        logger.warning(
            "%s tells of %.1f seconds and ends after %.1f: it seems to be cut off, and what there is of it is taken",
            film.path,
            seconds,
            video.duration,
        )


def _read_seeking(film: Film, index: PacketIndex, sampling: Sampling, transform: Transform | None) -> Video | None:
    """Decode the chosen frames only; None if seeking cannot be relied on or too much is broken.

    Frames that turn out not to decode are left out of the count, and the choice is made anew among the rest.
    """
    developer = Developer()
    for _ in range(ROUNDS):
        if not len(index.frames):
            return None
        chosen = sampling.indices(len(index.timeline), index.timeline.fps)
        shelf = Shelf(len(chosen), transform)
        seeker = Seeker(film, index)
        try:
            for place, frame in seeker.frames(chosen):
                shelf.put(place, developer.develop(frame))
        except SeekError:
            return None
        if shelf.filled.all():
            return _video(film, shelf, chosen, index.timeline)
        index = index.without(seeker.lost)
    return None


def _read_counting(film: Film, index: PacketIndex, sampling: Sampling, transform: Transform | None) -> Video:
    """Decode everything and count: for files without usable timestamps, or broken beyond a few frames.

    The choice is first made as if each packet became a frame, which spares a second pass where that is so.
    """
    developer = Developer()
    timeline, counted = index.timeline, False
    while True:
        chosen = sampling.indices(len(timeline), timeline.fps)
        shelf = Shelf(len(chosen), transform)
        places = {frame: place for place, frame in enumerate(chosen)}
        pts = array("q")
        for frame in _all_frames(film):
            if len(pts) in places:
                shelf.put(places[len(pts)], developer.develop(frame))
            pts.append(NO_PTS if frame.pts is None else frame.pts)
        if not film.damaged and len(pts) < len(index.pts):
            film.damaged = True  # perhaps more come out when they are decoded one by one
            continue
        if not pts:
            raise VideoError(f"{film.path} has a video stream, but not one picture of it can be decoded")
        timeline = _counted_timeline(film, index, np.frombuffer(pts, np.int64))
        if counted or chosen == sampling.indices(len(timeline), timeline.fps):
            return _video(film, shelf, chosen, timeline)
        counted = True


def _all_frames(film: Film) -> Iterator[av.VideoFrame]:
    film.rewind()
    for packet in film.packets():
        yield from film.decode(packet)
    yield from film.decode(None)


def _counted_timeline(film: Film, index: PacketIndex, pts: np.ndarray) -> Timeline:
    unit = film.stream.time_base
    if unit and index.carries_pts and pts.min() != NO_PTS and trustworthy(pts):
        return Timeline.of(pts, unit, 0, film.rates)
    return constant_timeline(film, len(pts))


def _video(film: Film, shelf: Shelf, chosen: tuple[int, ...], timeline: Timeline) -> Video:
    indices = tuple(compress(chosen, shelf.filled))
    return Video(
        frames=shelf.frames(),
        indices=indices,
        times=timeline.times(indices),
        duration=timeline.duration,
        fps=timeline.fps,
        total=len(timeline),
        name=film.path.name,
        comment=film.comment,
    )
