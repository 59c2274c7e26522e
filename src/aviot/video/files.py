"""Frames from a video file."""

import logging
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress
from pathlib import Path

import av
import numpy as np

from aviot.video.container import NO_PTS, Film
from aviot.video.damage import find_damage
from aviot.video.decode import Seeker, SeekError
from aviot.video.errors import VideoError
from aviot.video.packets import PacketIndex, constant_timeline, index_packets
from aviot.video.picture import Developer
from aviot.video.result import Video
from aviot.video.sample import Sampling
from aviot.video.shelf import Shelf, Transform
from aviot.video.timeline import Timeline, trustworthy

ROUNDS = 3
"""Times that frames are chosen anew because some would not decode, before the whole file is decoded to see which do."""

logger = logging.getLogger(__name__)


def read_file(path: Path, sampling: Sampling, transform: Transform | None) -> Video:
    """Index a file, choose, decode what was chosen, and warn if the file is damaged."""
    with Film(path) as film:
        index = index_packets(film)
        _note_incomplete(film, index)
        video = _read_seeking(film, index, sampling, transform) if index.timed else None
        video = video or _read_counting(film, index, sampling, transform)
        damage = find_damage(film, index, video.total)
    if damage is not None:
        logger.warning("%s is damaged: %s; what can be decoded is used", path, damage)
    return replace(video, damage=damage)


def _note_incomplete(film: Film, index: PacketIndex) -> None:
    """Count the packets that the demuxer found incomplete; those before the first keyframe do not matter."""
    for pts in index.pts[index.first_key :][index.corrupt[index.first_key :]].tolist():
        film.note_error(pts)


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
        film.unclean.clear()
        film.expect(len(index.pts))
        if film.container.format.name != "mpegts":  # its demuxer also doubts the seam of two recordings
            _note_incomplete(film, index)
        film.begin(int(index.pts[index.first_key]), headless=index.first_key > 0)
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
