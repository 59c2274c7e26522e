"""Reading of sampled frames from a video file."""

import logging
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import av
import numpy as np

from aviot.video.checks import VideoError
from aviot.video.container import NO_PTS, VideoContainer
from aviot.video.damage import find_damage
from aviot.video.decode import RgbConverter, SeekError, SeekingDecoder
from aviot.video.frames import FrameBuffer, Video
from aviot.video.hardware import decode_on_gpu, open_on_gpu, wants_gpu
from aviot.video.options import ReadOptions
from aviot.video.packets import PacketIndex, constant_timeline, index_packets
from aviot.video.parallel import THREAD_SAFE, decode_in_parallel, decoders_for, plan_parts
from aviot.video.sampling import Sampling, Timeline, are_valid_timestamps

MAX_ROUNDS = 3
"""Times that frames are sampled anew because some did not decode, before the whole file is decoded instead."""

INDEXED_BYTES = 2**26
"""Largest file that `check_opens` indexes: demuxing takes about a tenth of a second per 64 MiB."""

logger = logging.getLogger(__name__)


def read_file(path: Path, sampling: Sampling, options: ReadOptions) -> Video:
    """Index a file, decode the sampled frames, and log a warning if the file is damaged."""
    with VideoContainer(path, options.limits) as source:
        index = index_packets(source)
        _note_incomplete_packets(source, index)
        video = _read_on_gpu(source, index, sampling, options) or _read_in_parallel(source, index, sampling, options)
        if video is None and index.timed:
            video = _read_seeking(source, index, sampling, options)
        video = video or _read_sequentially(source, index, sampling, options)
        damage = find_damage(source, index, video.total)
    if damage is not None:
        logger.warning("%s is damaged: %s; what can be decoded is used", path, damage)
    return replace(video, damage=damage)


def check_opens(path: Path) -> None:
    """Raise VideoError unless a file opens as a video, before a model is loaded for it; folders are left to reading.

    Packets of small files are indexed too, which finds those that are made to exhaust the decoder. Nothing is decoded,
    and torch is not imported.
    """
    if path.is_dir():
        return
    with VideoContainer(path) as source:
        if path.stat().st_size <= INDEXED_BYTES:
            index = index_packets(source)
            if len(index.starts) == 1:  # every frame has to be decoded
                source.expect(len(index.frames))


def _note_incomplete_packets(source: VideoContainer, index: PacketIndex) -> None:
    """Record the packets that the demuxer found incomplete; those before the first keyframe do not matter."""
    for pts in index.pts[index.first_key :][index.corrupt[index.first_key :]].tolist():
        source.note_error(pts)


def _sampled(index: PacketIndex, sampling: Sampling) -> tuple[int, ...]:
    """Return the frames of a timed index to take."""
    indices = sampling.indices(len(index.timeline), index.timeline.fps)
    return index.nearest_keyframes(indices) if sampling.mode == "keyframes" else indices


def _is_intact(source: VideoContainer, index: PacketIndex) -> bool:
    """Return whether nothing has been found wrong with a file that can be decoded by timestamps."""
    return index.timed and len(index.frames) > 0 and not (source.unclean or source.truncated or index.truncated)


def _read_on_gpu(source: VideoContainer, index: PacketIndex, sampling: Sampling, options: ReadOptions) -> Video | None:
    """Decode the sampled frames of an intact file on a GPU, if that was chosen; None where the processor is to."""
    if not wants_gpu(options) or not _is_intact(source, index):
        return None
    indices = _sampled(index, sampling)
    own = open_on_gpu(source, options)
    if own is None:
        return None
    with own:
        buffer = decode_on_gpu(own, source, index, indices, options)
    return None if buffer is None else buffer.video(indices, index.timeline, source.path.name, source.comment)


def _read_in_parallel(
    source: VideoContainer, index: PacketIndex, sampling: Sampling, options: ReadOptions
) -> Video | None:
    """Decode the sampled frames of an intact file by several decoders; None where one is to do it."""
    if not _is_intact(source, index) or not isinstance(options.transform, THREAD_SAFE):
        return None
    indices = _sampled(index, sampling)
    parts = plan_parts(index, indices)
    if decoders_for(source, len(parts))[0] < 2:
        return None
    buffer = FrameBuffer(len(indices), options.transform, progress=options.progress)
    if not decode_in_parallel(source, index, parts, buffer) or not buffer.filled.all():
        return None
    return buffer.video(indices, index.timeline, source.path.name, source.comment)


def _read_seeking(source: VideoContainer, index: PacketIndex, sampling: Sampling, options: ReadOptions) -> Video | None:
    """Decode the sampled frames only; None if seeking is not reliable or too much is broken.

    Frames that turn out not to decode are removed from the index, and frames are sampled anew from the rest.
    """
    converter = RgbConverter()
    for _ in range(MAX_ROUNDS):
        if not len(index.frames):
            return None
        indices = _sampled(index, sampling)
        buffer = FrameBuffer(len(indices), options.transform, progress=options.progress)
        decoder = SeekingDecoder(source, index)
        try:
            for slot, frame in decoder.frames(indices):
                buffer.put(slot, converter.convert(frame))
        except SeekError:
            return None
        if buffer.filled.all():
            return buffer.video(indices, index.timeline, source.path.name, source.comment)
        index = index.without(decoder.lost)
    return None


def _read_sequentially(source: VideoContainer, index: PacketIndex, sampling: Sampling, options: ReadOptions) -> Video:
    """Decode everything and count frames: for files without usable timestamps, or with many broken frames.

    Frames are first sampled as if each packet became a frame, which spares a second pass if that is true.
    """
    converter = RgbConverter()
    timeline, counted = index.timeline, False
    while True:
        indices = sampling.indices(len(timeline), timeline.fps)
        buffer = FrameBuffer(len(indices), options.transform, progress=options.progress)
        slots = {frame: slot for slot, frame in enumerate(indices)}
        pts = array("q")
        source.unclean.clear()
        source.expect(len(index.pts))
        if source.container.format.name != "mpegts":  # its demuxer also flags the seam of two recordings
            _note_incomplete_packets(source, index)
        source.begin(int(index.pts[index.first_key]), headless=index.first_key > 0)
        for frame in _all_frames(source):
            if len(pts) in slots:
                buffer.put(slots[len(pts)], converter.convert(frame))
            pts.append(NO_PTS if frame.pts is None else frame.pts)
        if not source.damaged and len(pts) < len(index.pts):
            source.damaged = True  # a single thread may decode more frames
            continue
        if not pts:
            raise VideoError(f"{source.path} has a video stream, but not one picture of it can be decoded")
        timeline = _counted_timeline(source, index, np.frombuffer(pts, np.int64))
        if counted or indices == sampling.indices(len(timeline), timeline.fps):
            return buffer.video(indices, timeline, source.path.name, source.comment)
        counted = True


def _all_frames(source: VideoContainer) -> Iterator[av.VideoFrame]:
    source.rewind()
    for packet in source.packets():
        yield from source.decode(packet)
    yield from source.decode(None)


def _counted_timeline(source: VideoContainer, index: PacketIndex, pts: np.ndarray) -> Timeline:
    unit = source.stream.time_base
    if unit and index.carries_pts and pts.min() != NO_PTS and are_valid_timestamps(pts):
        return Timeline.from_pts(pts, unit, 0, source.rates)
    return constant_timeline(source, len(pts))
