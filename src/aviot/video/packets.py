"""What a file holds, learnt from its packets without decoding one."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

import av
import numpy as np
from numpy.typing import NDArray

from aviot.video.container import NO_PTS, Film
from aviot.video.errors import VideoError
from aviot.video.limits import FREE_PACKET_BYTES, PACKET_BYTES_PER_BYTE
from aviot.video.timeline import FALLBACK_FPS, Timeline, trustworthy

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
    those of decoded frames, are no presentation times. `positions` are where packets are in the file, -1 if unknown,
    and `corrupt` says which of them the demuxer found incomplete. `first_key` is the number of the first keyframe, and
    `end` the time in seconds, on the stream's clock, at which the last frame ends. `broke_off` is True if
    the container could not be read to its end.
    """

    pts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    frames: NDArray[np.int64]
    by_pts: NDArray[np.int64]
    timeline: Timeline
    timed: bool
    carries_pts: bool
    positions: NDArray[np.int64]
    corrupt: NDArray[np.bool_]
    first_key: int
    end: float
    broke_off: bool

    @property
    def last_position(self) -> int:
        """Where the packet that is stored last starts, -1 if unknown."""
        return int(self.positions[-1])

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
    found = _survey(film)
    pts = found.pts
    if not len(pts):
        raise VideoError(f"{film.path} has a video stream without pictures")
    codec = film.stream.codec_context.name
    keys = np.flatnonzero(found.keys)
    starts = keys if codec in RESTARTABLE else np.zeros(0, dtype=np.int64)
    if not len(starts) or starts[0] > 0:
        starts = np.concatenate(([0], starts))
    by_pts = np.argsort(pts, kind="stable")
    frames = by_pts[found.shown[by_pts]]
    unit = film.stream.time_base
    carries_pts = film.container.format.name != "avi" or codec not in REORDERING_IN_AVI
    timed = carries_pts and pts.min() != NO_PTS and len(frames) > 0 and trustworthy(pts[by_pts])
    if timed and unit:
        timeline = Timeline.of(pts[frames], unit, found.tail, film.rates)
    else:
        timeline, timed = constant_timeline(film, len(pts)), False
    end = timeline.duration if found.latest == NO_PTS or not unit else float((found.latest + found.tail) * unit)
    return PacketIndex(
        pts=pts,
        sizes=found.sizes,
        starts=starts,
        frames=frames,
        by_pts=by_pts,
        timeline=timeline,
        timed=timed,
        carries_pts=carries_pts,
        positions=found.positions,
        corrupt=found.corrupt,
        first_key=int(keys[0]) if len(keys) else 0,
        end=end,
        broke_off=film.broke_off,
    )


def constant_timeline(film: Film, total: int) -> Timeline:
    """Frames without times of their own, at the rate the container declares."""
    return Timeline.constant(total, next(iter(film.rates), FALLBACK_FPS))


@dataclass(frozen=True)
class Survey:
    """Every packet's fields, and timestamp and duration in ticks of the one shown last."""

    pts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    positions: NDArray[np.int64]
    keys: NDArray[np.bool_]
    shown: NDArray[np.bool_]
    corrupt: NDArray[np.bool_]
    latest: int
    tail: int


def _survey(film: Film) -> Survey:
    pts, sizes, positions = array("q"), array("q"), array("q")
    keys, shown, corrupt = array("b"), array("b"), array("b")
    latest, tail = NO_PTS, 0
    vp8 = film.stream.codec_context.name == "vp8"
    most = film.path.stat().st_size  # a packet takes at least a byte, so more of them are made up
    most_bytes, packet_bytes = FREE_PACKET_BYTES + PACKET_BYTES_PER_BYTE * most, 0
    for packet in film.packets():
        time = NO_PTS if packet.pts is None else packet.pts
        broken = packet.is_corrupt
        visible = not packet.is_discard and not broken
        if vp8:
            visible = visible and bool(memoryview(packet)[0] & VP8_SHOWN)
        pts.append(time)
        sizes.append(packet.size)
        positions.append(-1 if packet.pos is None else packet.pos)
        keys.append(packet.is_keyframe)
        shown.append(visible)
        corrupt.append(broken)
        if visible and time >= latest:
            latest, tail = time, packet.duration or 0
        packet_bytes += packet.size
        if len(pts) > most:
            raise VideoError(f"{film.path} claims more pictures than it has bytes; the file is damaged")
        if packet_bytes > most_bytes:
            raise VideoError(
                f"{film.path} unpacks to more than {most_bytes:,} bytes before anything is decoded, which no real "
                "video of its size does; it is made to exhaust the reader"
            )
    return Survey(
        pts=np.frombuffer(pts, np.int64),
        sizes=np.frombuffer(sizes, np.int64),
        positions=np.frombuffer(positions, np.int64),
        keys=np.frombuffer(keys, bool),
        shown=np.frombuffer(shown, bool),
        corrupt=np.frombuffer(corrupt, bool),
        latest=latest,
        tail=tail,
    )
