"""Decoding of sampled frames: seeking to the keyframes before them, and conversion to upright RGB."""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import av
import numpy as np
from av.buffer import Buffer
from av.sidedata.sidedata import SideDataContainer
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from aviot.video.checks import VideoError, VideoTooLarge
from aviot.video.container import VideoContainer
from aviot.video.frames import Picture
from aviot.video.packets import PacketIndex

MIN_SKIP = 16
"""Gaps of up to this many packets are decoded through: draining and refilling the decoder costs about as much."""

MIN_SEEK = 64
"""Gaps of up to this many packets are read through without a seek."""

SILENT_CODECS = frozenset({"hevc"})
"""Decoders that drop a frame they cannot decode without reporting an error. Each of their packets is a frame; packets
of other codecs may hold half a frame or repeat the last one, so a missing frame is not an error there."""


class SeekError(Exception):
    """Raised when the packets after a seek are not those that were indexed."""


@dataclass
class DecodeRun:
    """Packets `start` to `end`, decoded without a gap; `wanted` maps the timestamps of sampled frames to slots."""

    start: int
    end: int
    wanted: dict[int, int]


def plan_runs(index: PacketIndex, indices: tuple[int, ...]) -> list[DecodeRun]:
    """Return runs that decode the sampled frames, with a new run wherever skipping to a keyframe pays."""
    runs: list[DecodeRun] = []
    for slot, frame in enumerate(indices):
        number = int(index.frames[frame])
        start = index.start(number)
        if not runs or not runs[-1].start <= start <= runs[-1].end + MIN_SKIP:
            runs.append(DecodeRun(start, number, {}))
        runs[-1].end = max(runs[-1].end, number)
        runs[-1].wanted[int(index.pts[number])] = slot
    return runs


class SeekingDecoder:
    """Decoder of sampled frames that seeks over the packets that none of them needs.

    `lost` collects the numbers of packets that turn out not to decode.
    """

    def __init__(self, source: VideoContainer, index: PacketIndex) -> None:
        self._source = source
        self._index = index
        self._packets: Iterator[av.Packet] = iter(())
        self._next = len(index.pts)  # number of the next packet to read; indexing has read all of them
        self._seekable = True
        self.lost: set[int] = set()

    def frames(self, indices: tuple[int, ...]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield each sampled frame that can be decoded, with its slot."""
        runs = plan_runs(self._index, indices)
        self._source.expect(sum(run.end - run.start + 1 for run in runs))
        for run in runs:
            missing = dict(run.wanted)
            errors = set(self._source.unclean)
            yield from self._decode_run(run, missing)
            if missing:
                self._source.damaged = True
                self._source.unclean = errors  # counted again, without threads that would blame later packets
                self._rewind()
                # With gradual intra refresh one keyframe is not enough to start from; the one before it is.
                retry = DecodeRun(self._index.before(run.start), run.end, run.wanted)
                yield from self._decode_run(retry, missing, last=True)

    def decode_cleanly(self, run: DecodeRun) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield each sampled frame of one run; raise SeekError unless every packet of it decodes without an error."""
        missing = dict(run.wanted)
        self._source.begin(int(self._index.pts[run.start]), headless=False)
        for frame in self._decode_packets(run, decode_all=False):
            if frame.pts in missing:
                yield missing.pop(frame.pts), frame
        self._source.flush()
        if missing or self._source.unclean or self._source.truncated:
            raise SeekError

    def _decode_run(
        self, run: DecodeRun, missing: dict[int, int], last: bool = False
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield the frames of a run that are in `missing`, and remove them from it."""
        seen = array("q")
        trusted_from = int(self._index.pts[max(run.start, self._index.first_key)])
        self._source.begin(trusted_from, headless=run.start < self._index.first_key)
        for frame in self._decode_packets(run, decode_all=last):
            if frame.pts is None:
                raise SeekError
            seen.append(frame.pts)
            if frame.pts in missing:
                yield missing.pop(frame.pts), frame
                if not missing:
                    break
        self._source.flush()
        if last and missing:
            self._note_lost(run, seen, missing)

    def _note_lost(self, run: DecodeRun, seen: array, missing: dict[int, int]) -> None:
        """Add the frames of a run that did not come out to `lost`, except unwanted ones shown before its start.

        Those may depend on packets before the run.
        """
        numbers = self._index.frames
        numbers = numbers[(numbers >= run.start) & (numbers <= run.end)]
        pts = self._index.pts[numbers]
        decodable = (pts >= self._index.pts[run.start]) | np.isin(pts, list(missing))
        lost = decodable & ~np.isin(pts, np.frombuffer(seen, np.int64))
        self.lost.update(numbers[lost].tolist())
        if self._source.stream.codec_context.name in SILENT_CODECS:
            for time in pts[lost].tolist():
                self._source.note_error(time)

    def _decode_packets(self, run: DecodeRun, decode_all: bool) -> Iterator[av.VideoFrame]:
        yield from self._source.decode(self._go_to(run.start))
        for number in range(run.start + 1, run.end + 1):
            packet = next(self._packets, None)
            if packet is None or self._index.number(packet) != number:
                raise SeekError
            self._next = number + 1
            yield from self._source.decode(packet, needed=decode_all or packet.pts in run.wanted)
        yield from self._source.decode(None)

    def _go_to(self, number: int) -> av.Packet:
        """Return the packet of this number, with the file positioned after it."""
        ahead = number - self._next
        packet = None
        if ahead < 0 or (ahead > MIN_SEEK and self._seekable):
            for key in (number, self._index.before(number)):
                packet = packet or self._seek(key, number)
            if packet is None:
                self._rewind()
        packet = packet or self._find(number)
        if packet is None:
            raise SeekError
        self._next = number + 1
        return packet

    def _rewind(self) -> None:
        self._source.rewind()
        self._packets, self._next = self._source.packets(), 0

    def _seek(self, key: int, number: int) -> av.Packet | None:
        """Seek to packet `key`, then read up to packet `number`; None if it does not follow."""
        if not self._seekable:
            return None
        try:
            self._source.container.seek(int(self._index.pts[key]), stream=self._source.stream)
        except av.FFmpegError:
            self._seekable = False
            return None
        self._packets = self._source.packets()
        return self._find(number)

    def _find(self, number: int) -> av.Packet | None:
        """Read up to the packet of this number and return it; None if the file is positioned after it."""
        for packet in self._packets:
            found = self._index.number(packet)
            if found == number:
                return packet
            if found is not None and found > number:
                return None
            if found is not None and found < self._next <= number:
                self._seekable = False  # a seek ahead went back: reading on is faster
        return None


class RgbConverter:
    """Converter of decoded frames of any pixel format, colour matrix and range to upright RGB.

    swscale follows the colour matrix and range that a frame declares; without a declaration, limited-range BT.601 is
    assumed, as in OpenCV and decord. The alpha channel is dropped.
    """

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def convert(self, frame: av.VideoFrame) -> Picture:
        """Return a frame as uint8 [H,W,3]."""
        try:
            rgb = self._to_rgb(frame, None)
        except VideoError:  # a colour matrix that swscale does not know
            rgb = self._to_rgb(frame, Colorspace.ITU601.name)
        return upright(cast(Picture, rgb.to_ndarray()), display_matrix(frame))

    def _to_rgb(self, frame: av.VideoFrame, matrix: str | None) -> av.VideoFrame:
        # PyAV before 17 looks at a frame's matrix only if it differs from the target's. The target's means nothing for
        # RGB, but must be given for that reason; PyAV 14.0 takes names only.
        color_range = ColorRange.JPEG.name if frame.color_range == ColorRange.JPEG.value else None
        try:
            return self._reformatter.reformat(
                frame,
                format="rgb24",
                src_colorspace=matrix,  # type: ignore[arg-type]
                dst_colorspace=Colorspace.ITU601.name,  # type: ignore[arg-type]
                src_color_range=color_range,
            )
        except MemoryError as error:  # FFmpeg's own out-of-memory error too
            raise VideoTooLarge(f"a picture of {frame.width}x{frame.height} takes more memory than there is") from error
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f"pictures of the format {frame.format.name} cannot be converted to RGB") from error


def display_matrix(frame: av.VideoFrame) -> tuple[int, int, int, int] | None:
    """Return the linear part (a, b, c, d) of a frame's display matrix: p' = a·p + c·q, q' = b·p + d·q (right, down).

    The side data are wrapped anew here: `frame.side_data` stores the wrapper on the frame, which the wrapper refers to,
    so that each frame would stay in memory until Python's cycle collector runs.
    """
    try:
        data = SideDataContainer(frame).get("DISPLAYMATRIX")  # type: ignore[call-arg]
    except ValueError:  # side data of a type that PyAV has no name for, such as the EXIF tags of a JPEG
        return _rotation_matrix(getattr(frame, "rotation", 0))
    if data is None:
        return None
    a, b, _, c, d = np.frombuffer(bytes(cast(Buffer, data)), np.int32)[:5].tolist()
    return a, b, c, d


def _rotation_matrix(degrees: int) -> tuple[int, int, int, int] | None:
    """Return the display matrix of a counterclockwise rotation; mirroring is not known."""
    if not degrees:
        return None
    cosine, sine = (round(2**16 * function(math.radians(degrees))) for function in (math.cos, math.sin))
    return cosine, -sine, sine, cosine


def upright(picture: Picture, matrix: tuple[int, int, int, int] | None) -> Picture:
    """Rotate and mirror a frame as its display matrix says, to the nearest right angle."""
    if matrix is None:
        return picture
    a, b, c, d = matrix
    if abs(a) + abs(d) >= abs(b) + abs(c):
        right, down = a, d
    else:
        picture = picture.transpose(1, 0, 2)
        right, down = c, b
    return np.ascontiguousarray(picture[:: -1 if down < 0 else 1, :: -1 if right < 0 else 1])
