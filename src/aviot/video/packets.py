"""What a file holds, learnt from its packets without decoding one."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

import av
import numpy as np
from numpy.typing import NDArray

from aviot.video.container import Film
from aviot.video.errors import VideoError
from aviot.video.timeline import FALLBACK_FPS, Timeline, trustworthy

NO_PTS = -(2**63)
"""Stands for a packet without timestamp; FFmpeg's own value for it."""

RESTARTABLE = frozenset(
    (
        *("av1", "dnxhd", "dvvideo", "ffv1", "flv", "h263", "h264", "hevc", "libdav1d", "mjpeg", "mpeg1video"),
        *("mpeg2video", "mpeg4", "prores", "rawvideo", "theora", "vc1", "vp8", "vp9", "wmv1", "wmv2", "wmv3"),
    )
)
"""Codecs that decode from any keyframe on. Others may need what came earlier: the palette of a GIF is in its head."""

REORDERING_IN_AVI = frozenset({"h264", "hevc"})
"""AVI has no presentation times, and FFmpeg cannot rebuild them where these codecs reorder pictures."""

VP8_SHOWN = 0x10
"""Bit of a VP8 packet's first byte that is set where its picture is shown."""


@dataclass(frozen=True)
class PacketIndex:
    """Packets in the order they are stored and decoded, and the frames they become in the order they are shown.

    `frames[i]` is the number of the packet that becomes frame i. `starts` are the packets decoding can begin at.
    `timed` tells whether every packet has a timestamp of its own, by which frames and packets can be matched; without
    it only counting decoded frames tells which is which. `carries_pts` is False of a container whose timestamps, even
    those of decoded frames, are no presentation times.
    """

    pts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    frames: NDArray[np.int64]
    by_pts: NDArray[np.int64]
    timeline: Timeline
    timed: bool
    carries_pts: bool

    def number(self, packet: av.Packet) -> int | None:
        """Which packet this is, by timestamp and size; None if it is none of those indexed."""
        if packet.pts is None:
            return None
        place = int(np.searchsorted(self.pts, packet.pts, sorter=self.by_pts))
        if place == len(self.by_pts):
            return None
        number = int(self.by_pts[place])
        return number if self.pts[number] == packet.pts and self.sizes[number] == packet.size else None

    def start(self, number: int) -> int:
        """The packet to decode from to get packet `number`: the last keyframe stored and shown no later than it.

        Pictures that are stored after a keyframe but shown before it lean on the one before (an open group).
        """
        place = bisect_right(self.starts, number) - 1
        while place > 0 and self.pts[self.starts[place]] > self.pts[number]:
            place -= 1
        return int(self.starts[place])

    def before(self, start: int) -> int:
        """The keyframe before this one, or itself if it is the first."""
        return int(self.starts[max(0, bisect_right(self.starts, start) - 2)])

    def without(self, lost: Iterable[int]) -> "PacketIndex":
        """The same with frames gone whose packets turned out not to decode."""
        mask = ~np.isin(self.frames, list(lost))
        return replace(self, frames=self.frames[mask], timeline=self.timeline.keep(mask))


def index_packets(film: Film) -> PacketIndex:
    """Read through a file once and note every packet."""
    pts, sizes, keys, shown, tail = _survey(film)
    if not len(pts):
        raise VideoError(f"{film.path} has a video stream without pictures")
    codec = film.stream.codec_context.name
    starts = np.flatnonzero(keys) if codec in RESTARTABLE else np.zeros(0, dtype=np.int64)
    if not len(starts) or starts[0] > 0:
        starts = np.concatenate(([0], starts))
    by_pts = np.argsort(pts, kind="stable")
    frames = by_pts[shown[by_pts]]
    unit = film.stream.time_base
    carries_pts = film.container.format.name != "avi" or codec not in REORDERING_IN_AVI
    timed = carries_pts and pts.min() != NO_PTS and len(frames) > 0 and trustworthy(pts[by_pts])
    if timed and unit:
        timeline = Timeline.of(pts[frames], unit, tail, film.rates)
    else:
        timeline, timed = constant_timeline(film, len(pts)), False
    return PacketIndex(pts, sizes, starts, frames, by_pts, timeline, timed, carries_pts)


def constant_timeline(film: Film, total: int) -> Timeline:
    """Frames without times of their own, at the rate the container declares."""
    return Timeline.constant(total, next(iter(film.rates), FALLBACK_FPS))


def _survey(film: Film) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
    """Timestamp, size, keyframe and shown flag of every packet, and the duration in ticks of the one shown last."""
    pts, sizes, keys, shown = array("q"), array("q"), array("b"), array("b")
    latest, tail = NO_PTS, 0
    vp8 = film.stream.codec_context.name == "vp8"
    most = film.path.stat().st_size  # a packet takes at least a byte, so more of them are made up
    for packet in film.packets():
        time = NO_PTS if packet.pts is None else packet.pts
        visible = not packet.is_discard and not packet.is_corrupt
        if vp8:
            visible = visible and bool(memoryview(packet)[0] & VP8_SHOWN)
        pts.append(time)
        sizes.append(packet.size)
        keys.append(packet.is_keyframe)
        shown.append(visible)
        if visible and time >= latest:
            latest, tail = time, packet.duration or 0
        if len(pts) > most:
            raise VideoError(f"{film.path} claims more pictures than it has bytes; the file is damaged")
    return (
        np.frombuffer(pts, np.int64),
        np.frombuffer(sizes, np.int64),
        np.frombuffer(keys, bool),
        np.frombuffer(shown, bool),
        tail,
    )
