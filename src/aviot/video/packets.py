"""Index of a video file's packets, built without decoding any of them."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

import av
import numpy as np
from numpy.typing import NDArray

from aviot.video.checks import FREE_PACKET_BYTES, PACKET_BYTES_PER_BYTE, VideoError
from aviot.video.container import NO_PTS, VideoContainer
from aviot.video.keyframes import begins_anew
from aviot.video.sampling import FALLBACK_FPS, Timeline, are_valid_timestamps

RESTARTABLE_CODECS = frozenset(
    (
        *("av1", "dnxhd", "dvvideo", "ffv1", "flv", "h263", "h264", "hevc", "libdav1d", "mjpeg", "mpeg1video"),
        *("mpeg2video", "mpeg4", "prores", "rawvideo", "theora", "vc1", "vp8", "vp9", "wmv1", "wmv2", "wmv3"),
    )
)
"""Codecs that decode from any keyframe on. Others may need earlier data: the palette of a GIF is in its header."""

REORDERING_IN_AVI = frozenset({"h264", "hevc"})
"""Codecs whose presentation times FFmpeg cannot rebuild in AVI, which has none: they reorder frames."""

VP8_SHOWN = 0x10
"""Bit of a VP8 packet's first byte that is set if its frame is shown."""


@dataclass(frozen=True)
class PacketIndex:
    """Packets in the order they are stored and decoded, and their frames in presentation order.

    `frames[i]` is the number of the packet that becomes frame i. `starts` are the packets that decoding can start at,
    `keys` those of them that are keyframes. At a packet that is `clean`, the decoder forgets everything before it: what
    is decoded from there on is the same to the bit, whether or not the packets before it were decoded.
    `timed` is True if every packet has a timestamp of its own, by which frames and packets can be matched; otherwise
    frames must be counted as they are decoded. `carries_pts` is False for a container whose timestamps, even those of
    decoded frames, are not presentation times. `positions` are byte offsets of packets in the file, -1 if unknown, and
    `corrupt` marks those that the demuxer found incomplete. `first_key` is the number of the first keyframe, and `end`
    the time in seconds, on the stream's clock, at which the last frame ends. `truncated` is True if the container could
    not be read to its end.
    """

    pts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]
    clean: NDArray[np.bool_]
    frames: NDArray[np.int64]
    by_pts: NDArray[np.int64]
    timeline: Timeline
    timed: bool
    carries_pts: bool
    positions: NDArray[np.int64]
    corrupt: NDArray[np.bool_]
    first_key: int
    end: float
    truncated: bool

    @property
    def last_position(self) -> int:
        """Byte offset of the packet that is stored last, -1 if unknown."""
        return int(self.positions[-1])

    def number(self, packet: av.Packet) -> int | None:
        """Return the number of a packet, found by timestamp and size; None if it is not in the index."""
        if packet.pts is None:
            return None
        place = int(np.searchsorted(self.pts, packet.pts, sorter=self.by_pts))
        if place == len(self.by_pts):
            return None
        number = int(self.by_pts[place])
        return number if self.pts[number] == packet.pts and self.sizes[number] == packet.size else None

    def start(self, number: int) -> int:
        """Return the packet to decode from to get packet `number`: the last keyframe stored and shown no later.

        Frames stored after a keyframe but shown before it depend on the keyframe before that one (an open GOP).
        """
        place = bisect_right(self.starts, number) - 1
        while place > 0 and self.pts[self.starts[place]] > self.pts[number]:
            place -= 1
        return int(self.starts[place])

    def before(self, start: int) -> int:
        """Return the keyframe before this one, or the first keyframe itself."""
        return int(self.starts[max(0, bisect_right(self.starts, start) - 2)])

    def nearest_keyframes(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the frames nearest in time to these that can be decoded alone, each once; the same if none can."""
        places = np.flatnonzero(np.isin(self.frames, self.keys))
        if not len(places):
            return indices
        ticks, wanted = self.timeline.ticks[places], self.timeline.ticks[list(indices)]
        after = np.searchsorted(ticks, wanted).clip(max=len(places) - 1)
        before = (after - 1).clip(min=0)
        nearest = np.where(np.abs(wanted - ticks[before]) <= np.abs(ticks[after] - wanted), before, after)
        return tuple(places[np.unique(nearest)].tolist())

    def without(self, lost: Iterable[int]) -> "PacketIndex":
        """Return the index without the frames of packets that turned out not to decode."""
        mask = ~np.isin(self.frames, list(lost))
        return replace(self, frames=self.frames[mask], timeline=self.timeline.select(mask))


def index_packets(source: VideoContainer) -> PacketIndex:
    """Read through a file once and index every packet."""
    table = _read_packets(source)
    pts = table.pts
    if not len(pts):
        raise VideoError(f"{source.path} has a video stream without pictures")
    codec = source.stream.codec_context.name
    keys = np.flatnonzero(table.keys)
    starts = keys if codec in RESTARTABLE_CODECS else np.zeros(0, dtype=np.int64)
    if not len(starts) or starts[0] > 0:
        starts = np.concatenate(([0], starts))
    by_pts = np.argsort(pts, kind="stable")
    frames = by_pts[table.shown[by_pts]]
    unit = source.stream.time_base
    carries_pts = source.container.format.name != "avi" or codec not in REORDERING_IN_AVI
    timed = carries_pts and pts.min() != NO_PTS and len(frames) > 0 and are_valid_timestamps(pts[by_pts])
    if timed and unit:
        timeline = Timeline.from_pts(pts[frames], unit, table.tail, source.rates)
    else:
        timeline, timed = constant_timeline(source, len(pts)), False
    end = timeline.duration if table.latest == NO_PTS or not unit else float((table.latest + table.tail) * unit)
    return PacketIndex(
        pts=pts,
        sizes=table.sizes,
        starts=starts,
        keys=keys if codec in RESTARTABLE_CODECS else keys[:0],
        clean=table.clean,
        frames=frames,
        by_pts=by_pts,
        timeline=timeline,
        timed=timed,
        carries_pts=carries_pts,
        positions=table.positions,
        corrupt=table.corrupt,
        first_key=int(keys[0]) if len(keys) else 0,
        end=end,
        truncated=source.truncated,
    )


def constant_timeline(source: VideoContainer, total: int) -> Timeline:
    """Return the timeline of frames without timestamps, at the rate that the container declares."""
    return Timeline.constant(total, next(iter(source.rates), FALLBACK_FPS))


@dataclass(frozen=True)
class PacketTable:
    """Fields of every packet, and the timestamp and duration in ticks of the one shown last."""

    pts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    positions: NDArray[np.int64]
    keys: NDArray[np.bool_]
    shown: NDArray[np.bool_]
    corrupt: NDArray[np.bool_]
    clean: NDArray[np.bool_]
    latest: int
    tail: int


def _read_packets(source: VideoContainer) -> PacketTable:
    pts, sizes, positions = array("q"), array("q"), array("q")
    keys, shown, corrupt, clean = array("b"), array("b"), array("b"), array("b")
    latest, tail = NO_PTS, 0
    codec = source.stream.codec_context.name
    vp8, extra = codec == "vp8", source.stream.codec_context.extradata or b""
    max_packets = source.path.stat().st_size  # a packet takes at least one byte
    max_bytes, packet_bytes = FREE_PACKET_BYTES + PACKET_BYTES_PER_BYTE * max_packets, 0
    for packet in source.packets():
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
        clean.append(packet.is_keyframe and begins_anew(codec, extra, packet))
        if visible and time >= latest:
            latest, tail = time, packet.duration or 0
        packet_bytes += packet.size
        if len(pts) > max_packets:
            raise VideoError(f"{source.path} claims more pictures than it has bytes; the file is damaged")
        if packet_bytes > max_bytes:
            raise VideoError(
                f"{source.path} unpacks to more than {max_bytes:,} bytes before anything is decoded, which no real "
                "video of its size does; it is made to exhaust the reader"
            )
    return PacketTable(
        pts=np.frombuffer(pts, np.int64),
        sizes=np.frombuffer(sizes, np.int64),
        positions=np.frombuffer(positions, np.int64),
        keys=np.frombuffer(keys, bool),
        shown=np.frombuffer(shown, bool),
        corrupt=np.frombuffer(corrupt, bool),
        clean=np.frombuffer(clean, bool),
        latest=latest,
        tail=tail,
    )
