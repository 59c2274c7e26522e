"""An open video file and the decoder of its video stream; refuses files that are not local, regular videos."""

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from aviot.video.checks import (
    DEFAULT_LIMITS,
    FREE_PIXELS,
    MAX_PIXELS,
    PIXELS_PER_BYTE,
    ReadLimits,
    VideoError,
    VideoTooLarge,
    check_file,
    reason,
)
from aviot.video.mp4_tables import check_sample_counts

if TYPE_CHECKING:
    from av.codec.hwaccel import HWAccel

FORMATS = (
    "3g2,3gp,aac,ac3,aiff,amr,apng,asf,au,av1,avi,caf,dv,eac3,flac,flv,gif,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mp3,mp4,"
    "mpeg,mpegts,mpegvideo,mxf,nut,obu,ogg,vc1,w64,wav,webm,yuv4mpegpipe"
)
"""Container formats that FFmpeg may detect. Playlists, image patterns and scripts are excluded, so that a file never
opens another; audio-only formats are included, so that the error can tell them from files of other kinds."""

PROTOCOLS = "file"

THREADED_PIXELS = 2**25
"""Pixels that all decoder threads may hold together: each works on its own frame, so large frames get few threads."""

MAX_THREADS = 8
"""Decoder threads; more do not pay, since few frames lie between a keyframe and the frame to decode."""

SKIPPING_CODECS = frozenset({"h264", "hevc", "mpeg1video", "mpeg2video", "mpeg4"})
"""Decoders that can skip non-reference frames packet by packet."""

TIMEOUT = 60.0
"""Seconds after which FFmpeg abandons a single read."""

NO_PTS = -(2**63)
"""Timestamp of a packet that has none, as in FFmpeg."""

COVER_CODECS = frozenset({"bmp", "gif", "mjpeg", "png", "tiff", "webp"})
"""Codecs of cover art."""


class VideoContainer:
    """An open video file and its video stream.

    Once `damaged` is set, the file is decoded on a single thread after the next `rewind`: with several threads, an
    error surfaces while other frames are in flight, and PyAV drops those with it.

    `unclean` collects the timestamps of packets and frames that did not decode cleanly; `truncated` is set when the
    container cannot be read any further. VideoError is raised at the first packet after the deadline of `limits`.

    `hardware` decodes on a device, and raises VideoError where that is not possible. `threads` are those of the decoder
    (default: what suits the machine and the size of the pictures).
    """

    def __init__(
        self,
        path: Path,
        limits: ReadLimits = DEFAULT_LIMITS,
        *,
        hardware: "HWAccel | None" = None,
        threads: int | None = None,
    ) -> None:
        check_file(path)
        self._deadline = limits.begin(path)
        check_sample_counts(path)
        self.hardware = hardware
        self._threads = threads
        self.path = path
        self.damaged = False
        self.truncated = False
        self.unclean: set[int] = set()
        self._trusted_from = NO_PTS
        self._headless = False
        self._latest = NO_PTS
        self._decoded_pixels = 0
        self._allowed_pixels = FREE_PIXELS + PIXELS_PER_BYTE * path.stat().st_size
        self.container, self.stream = self._open()

    def again(self, threads: int) -> "VideoContainer":
        """Open the same file once more, under the same deadline, with a decoder of its own."""
        other = VideoContainer(self.path, threads=threads)
        other._deadline = self._deadline
        return other

    def _open(self) -> tuple[InputContainer, VideoStream]:
        try:
            # FFmpeg never takes an absolute path for a protocol, whatever colons it has. Options go to the container
            # alone: with options for the streams, PyAV before 18 crashes on files whose streams appear late.
            container = av.open(
                os.path.abspath(self.path),
                container_options={"protocol_whitelist": PROTOCOLS, "format_whitelist": FORMATS},
                metadata_errors="replace",
                timeout=(TIMEOUT, TIMEOUT),
                **self._acceleration,
            )
        except (av.FFmpegError, ValueError, OSError, MemoryError) as error:
            raise VideoError(f"{self.path} is not a video that FFmpeg can read ({reason(error)})") from error
        try:
            return container, self._prepare(container)
        except VideoError:
            container.close()
            raise

    @property
    def _acceleration(self) -> dict[str, Any]:
        """The argument that PyAV decodes on a device with, which versions before 14 do not know."""
        return {} if self.hardware is None else {"hwaccel": self.hardware}

    def _prepare(self, container: InputContainer) -> VideoStream:
        stream = _video_stream(container)
        if stream is None:
            raise VideoError(f"{self.path} has no video stream")
        codec = stream.codec_context
        if codec is None:
            raise VideoError(f"{self.path} holds a video stream that this FFmpeg has no decoder for")
        pixels = codec.width * codec.height
        if pixels > MAX_PIXELS:
            raise VideoError(
                f"{self.path} has pictures of {codec.width}x{codec.height}, more than the limit of {MAX_PIXELS:,} "
                "pixels; scale it down first"
            )
        codec.options = {"max_pixels": str(MAX_PIXELS)}
        codec.thread_type = "AUTO"
        threads = self._threads or min(cpu_count(), MAX_THREADS, THREADED_PIXELS // max(1, pixels))
        codec.thread_count = 1 if self.damaged or self.hardware is not None else max(1, threads)
        return stream

    def rewind(self) -> None:
        """Reopen the file at its beginning, with a fresh decoder."""
        self.container.close()
        self.container, self.stream = self._open()

    def begin(self, trusted_from: int, headless: bool) -> None:
        """Prepare for decoding from here on; errors count for frames shown at or after `trusted_from`.

        Earlier ones may depend on frames before the keyframe. A headless stream starts without a keyframe, as
        recordings of a broadcast do: its errors count after the first decoded frame.
        """
        self._trusted_from, self._headless, self._latest = trusted_from, headless, NO_PTS

    def packets(self) -> Iterator[av.Packet]:
        """Yield the packets from the current position on; a truncated file ends early."""
        for packet in self._demuxed():
            self._deadline.check()
            if packet.size:  # an empty packet holds no frame, and would flush the decoder
                yield packet

    def _demuxed(self) -> Iterator[av.Packet]:
        try:
            yield from self.container.demux(self.stream)
        except av.FFmpegError:
            self.truncated = True
        except (ValueError, IndexError):  # IndexError: PyAV fails on streams that appear late
            return

    def decode(self, packet: av.Packet | None, needed: bool = True) -> list[av.VideoFrame]:
        """Return the intact frames that the decoder outputs for a packet; None drains the decoder.

        A packet that is not needed itself may be skipped if no other frame depends on it.
        """
        self._deadline.check()
        codec = self.stream.codec_context
        if codec.name in SKIPPING_CODECS:
            codec.skip_frame = "DEFAULT" if needed else "NONREF"
        if packet is not None:
            self._latest = NO_PTS if packet.pts is None else packet.pts
        try:
            frames = codec.decode(packet)
        except MemoryError as error:  # FFmpeg's own out-of-memory error too; the packet is not at fault
            raise VideoTooLarge(f"{self.path} takes more memory to decode than there is") from error
        except (av.FFmpegError, ValueError):
            if not self._headless:
                self.note_error(self._latest)
            return []
        intact = []
        for frame in frames:
            self._decoded_pixels += frame.width * frame.height
            self._check_pixels(0)
            if frame.is_corrupt:
                self.note_error(NO_PTS if frame.pts is None else frame.pts)
            else:
                intact.append(frame)
        self._headless = self._headless and not intact
        return intact

    def expect(self, frames: int) -> None:
        """Raise VideoError if decoding this many more frames would exceed the pixels allowed for the file's size."""
        codec = self.stream.codec_context
        self._check_pixels(frames * codec.width * codec.height)

    def _check_pixels(self, expected: int) -> None:
        pixels = self._decoded_pixels + expected
        if pixels > self._allowed_pixels:
            raise VideoError(
                f"{self.path} unpacks to more than {self._allowed_pixels:,} pixels, which no real video of its size "
                f"does; it is made to exhaust the decoder, or has to be re-encoded with smaller pictures"
            )

    def note_error(self, pts: int) -> None:
        """Record a packet or frame that did not decode cleanly, once per timestamp; those without one all count."""
        if pts == NO_PTS:
            self.unclean.add(NO_PTS + len(self.unclean))
        elif pts >= self._trusted_from:
            self.unclean.add(pts)

    def flush(self) -> None:
        """Discard the frames inside the decoder, so that it can start again at a keyframe."""
        self.stream.codec_context.flush_buffers()

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """Frame rates that the container declares, the most likely first."""
        stream = self.stream
        declared = (stream.average_rate, stream.guessed_rate, stream.base_rate)
        return tuple(dict.fromkeys(rate for rate in declared if rate is not None and rate > 0))

    @property
    def comment(self) -> str:
        """The container's comment tag, whose name is upper or lower case by format; empty without one."""
        tags = {name.lower(): text for name, text in self.container.metadata.items()}
        return tags.get("comment", "")

    def __enter__(self) -> "VideoContainer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.container.close()


def _video_stream(container: InputContainer) -> VideoStream | None:
    moving = [stream for stream in container.streams.video if not _is_cover(container, stream)]
    best = container.streams.best("video")
    return next((stream for stream in moving if stream is best), moving[0] if moving else None)


def _is_cover(container: InputContainer, stream: VideoStream) -> bool:
    """Return whether a stream is cover art rather than a video."""
    if hasattr(stream, "disposition"):
        return bool(stream.disposition & (stream.disposition.attached_pic | stream.disposition.timed_thumbnails))
    # PyAV before 14.1 has no disposition; cover art is a still image beside audio, without a frame rate.
    still = stream.codec_context is not None and stream.codec_context.name in COVER_CODECS
    return still and bool(container.streams.audio) and not stream.average_rate


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
