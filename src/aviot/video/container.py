"""A video file, opened with care: local, regular, one real video stream."""

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from aviot.video.claims import check_claims
from aviot.video.errors import VideoError, VideoTooLarge, reason
from aviot.video.limits import FREE_PIXELS, MAX_PIXELS, PIXELS_PER_BYTE
from aviot.video.paths import check_file

FORMATS = (
    "3g2,3gp,aac,ac3,aiff,amr,apng,asf,au,av1,avi,caf,dv,eac3,flac,flv,gif,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mp3,mp4,"
    "mpeg,mpegts,mpegvideo,mxf,nut,obu,ogg,vc1,w64,wav,webm,yuv4mpegpipe"
)
"""Containers FFmpeg may recognise. No playlist, image pattern or script is among them, so a file never opens another;
those of pure audio are, to be told apart from what is no medium at all."""

PROTOCOLS = "file"

THREADED_PIXELS = 2**25
"""Pixels that the threads of a decoder may hold together: each works on a picture of its own, so large ones get few."""

MAX_THREADS = 8
"""More do not pay: from keyframe to wanted frame are seldom more pictures than keep these busy."""

SKIPPING = frozenset({"h264", "hevc", "mpeg1video", "mpeg2video", "mpeg4"})
"""Decoders that can be told with each packet whether a picture that no other leans on is worth decoding."""

TIMEOUT = 60.0
"""Seconds after which FFmpeg gives up a single read."""

NO_PTS = -(2**63)
"""Stands for a packet without timestamp; FFmpeg's own value for it."""

PICTURE_CODECS = frozenset({"bmp", "gif", "mjpeg", "png", "tiff", "webp"})
"""What cover art is stored in."""


class Film:
    """An open video file and its stream; `rewind` starts it over.

    Once `damaged` is set, a rewound film decodes on a single thread: with several, an error comes up while other
    pictures are under way, and PyAV drops those with it.

    `unclean` collects the timestamps of packets and pictures that did not decode cleanly; `broke_off` is set when
    the container cannot be read on.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        check_claims(path)
        self.path = path
        self.damaged = False
        self.broke_off = False
        self.unclean: set[int] = set()
        self._trusted_from = NO_PTS
        self._headless = False
        self._latest = NO_PTS
        self._decoded_pixels = 0
        self._allowed_pixels = FREE_PIXELS + PIXELS_PER_BYTE * path.stat().st_size
        self.container, self.stream = self._open()

    def _open(self) -> tuple[InputContainer, VideoStream]:
        try:
            # An absolute path is never taken for a protocol, whatever colons it has. Options go to the container alone:
            # PyAV before 18 crashes on files whose streams show up late if it has any for the streams.
            container = av.open(
                os.path.abspath(self.path),
                container_options={"protocol_whitelist": PROTOCOLS, "format_whitelist": FORMATS},
                metadata_errors="replace",
                timeout=(TIMEOUT, TIMEOUT),
            )
        except (av.FFmpegError, ValueError, OSError, MemoryError) as error:
            raise VideoError(f"{self.path} is not a video that FFmpeg can read ({reason(error)})") from error
        try:
            return container, self._prepare(container)
        except VideoError:
            container.close()
            raise

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
                f"{self.path} has pictures of {codec.width}x{codec.height}, more than the {MAX_PIXELS:,} pixels that "
                "are decoded; scale it down first"
            )
        codec.options = {"max_pixels": str(MAX_PIXELS)}
        codec.thread_type = "AUTO"
        threads = min(_processors(), MAX_THREADS, THREADED_PIXELS // max(1, pixels))
        codec.thread_count = 1 if self.damaged else max(1, threads)
        return stream

    def rewind(self) -> None:
        """Start over with nothing read and nothing decoded."""
        self.container.close()
        self.container, self.stream = self._open()

    def begin(self, trusted_from: int, headless: bool) -> None:
        """Prepare for decoding from here on: errors count for pictures shown at or after `trusted_from`.

        Earlier ones may depend on pictures before the keyframe. A headless stream starts without a keyframe, as
        recordings of a broadcast do: its errors count from the first picture on.
        """
        self._trusted_from, self._headless, self._latest = trusted_from, headless, NO_PTS

    def packets(self) -> Iterator[av.Packet]:
        """Compressed pictures from where the file stands; a file that breaks off ends there."""
        try:
            for packet in self.container.demux(self.stream):
                if packet.size:  # what is empty holds no picture, and would tell the decoder to finish
                    yield packet
        except av.FFmpegError:
            self.broke_off = True
        except (ValueError, IndexError):  # the latter where PyAV trips over a stream that shows up late
            return

    def decode(self, packet: av.Packet | None, needed: bool = True) -> list[av.VideoFrame]:
        """Whole pictures that come out when this one goes in; None asks for those still inside.

        One that is not needed itself may be passed over if no other picture leans on it.
        """
        codec = self.stream.codec_context
        if codec.name in SKIPPING:
            codec.skip_frame = "DEFAULT" if needed else "NONREF"
        if packet is not None:
            self._latest = NO_PTS if packet.pts is None else packet.pts
        try:
            frames = codec.decode(packet)
        except MemoryError as error:  # one of FFmpeg's too; no fault of the packet
            raise VideoTooLarge(f"{self.path} takes more memory to decode than there is") from error
        except (av.FFmpegError, ValueError):
            if not self._headless:
                self.note_error(self._latest)
            return []
        clean = []
        for frame in frames:
            self._decoded_pixels += frame.width * frame.height
            self._check_pixels(0)
            if frame.is_corrupt:
                self.note_error(NO_PTS if frame.pts is None else frame.pts)
            else:
                clean.append(frame)
        self._headless = self._headless and not clean
        return clean

    def expect(self, pictures: int) -> None:
        """Raise VideoError if so few bytes cannot honestly hold so many pictures more."""
        codec = self.stream.codec_context
        self._check_pixels(pictures * codec.width * codec.height)

    def _check_pixels(self, expected: int) -> None:
        pixels = self._decoded_pixels + expected
        if pixels > self._allowed_pixels:
            raise VideoError(
                f"{self.path} unpacks to more than {self._allowed_pixels:,} pixels, which no real video of its size "
                f"does; it is made to exhaust the decoder, or has to be re-encoded with smaller pictures"
            )

    def note_error(self, pts: int) -> None:
        """Count a packet or picture that did not decode cleanly, once; each counts that has no timestamp."""
        if pts == NO_PTS:
            self.unclean.add(NO_PTS + len(self.unclean))
        elif pts >= self._trusted_from:
            self.unclean.add(pts)

    def flush(self) -> None:
        """Forget the pictures inside the decoder, so that it can begin anew at a keyframe."""
        self.stream.codec_context.flush_buffers()

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """Frame rates the container declares, the likeliest first."""
        stream = self.stream
        declared = (stream.average_rate, stream.guessed_rate, stream.base_rate)
        return tuple(dict.fromkeys(rate for rate in declared if rate is not None and rate > 0))

    @property
    def comment(self) -> str:
        """The container's comment tag, which formats spell in upper or lower case; empty without one."""
        tags = {name.lower(): text for name, text in self.container.metadata.items()}
        return tags.get("comment", "")

    def __enter__(self) -> "Film":
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
    """Whether a stream is the picture on an album rather than a video."""
    if hasattr(stream, "disposition"):
        return bool(stream.disposition & (stream.disposition.attached_pic | stream.disposition.timed_thumbnails))
    # PyAV before 14.1 does not tell; cover art is a still picture beside sound, without a rate.
    still = stream.codec_context is not None and stream.codec_context.name in PICTURE_CODECS
    return still and bool(container.streams.audio) and not stream.average_rate


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
