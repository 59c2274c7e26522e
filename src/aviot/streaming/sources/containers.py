"""Sources that FFmpeg demuxes: files, files that still grow, pipes, cameras and network streams."""

import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import av
from av.container import InputContainer

from aviot.streaming.sources.base import POLL_SECONDS, FrameSource, LiveFrame
from aviot.video.checks import MAX_PIXELS, VideoError, check_file, reason
from aviot.video.container import FORMATS, NO_PTS, VideoContainer
from aviot.video.decode import RgbConverter

NETWORK_FORMATS = f"{FORMATS},mpjpeg,rtp,rtsp,sdp"
NETWORK_PROTOCOLS = "rtsp,rtp,srtp,udp,tcp,http,https,httpproxy,tls,crypto"
"""Protocols of network streams. Files are not among them: no server can have one of this machine opened."""

PROBE = {"probesize": str(2**20), "analyzeduration": "2000000"}  # bytes and microseconds before the first frame
UNTIMED = ("mjpeg", "mpjpeg")  # formats without timestamps, whose frames have the time of their arrival
NETWORK_TIMEOUT = 15.0  # seconds for one read
RETRY_SECONDS = 2.0  # between two attempts to reach a camera or a server


class FilePlayback(FrameSource):
    """A whole video file, from its beginning to its end."""

    live = False

    def __init__(self, path: Path) -> None:
        self._container = VideoContainer(path)

    def frames(self, stop: threading.Event) -> Iterator[LiveFrame]:
        """Decode every packet; times are the file's own."""
        converter = RgbConverter()
        with self._container as source:
            for packet in self._packets(stop):
                if packet is not None and packet.is_corrupt:
                    source.note_error(NO_PTS if packet.pts is None else packet.pts)
                for frame in source.decode(packet):
                    yield _live(frame, source.stream, converter)
                self.damaged = len(source.unclean)

    def _packets(self, stop: threading.Event) -> Iterator[av.Packet | None]:
        for packet in self._container.packets():
            if stop.is_set():
                return
            yield packet
        yield None  # drains the decoder


class Demuxed(FrameSource):
    """A stream that FFmpeg reads as it arrives."""

    @abstractmethod
    def opened(self, stop: threading.Event) -> Iterator[InputContainer]:
        """Yield the container to read, and others after it if reading has to begin anew."""

    def frames(self, stop: threading.Event) -> Iterator[LiveFrame]:
        """Decode every packet; those that are broken are counted."""
        converter = RgbConverter()
        for container in self.opened(stop):
            with container:
                stream = _stream(container)
                timed = container.format.name not in UNTIMED
                for packet in _packets(container, stream, stop):
                    for frame in self._decoded(stream, packet):
                        yield _live(frame, stream, converter, timed=timed)

    def _decoded(self, stream: Any, packet: av.Packet | None) -> list[av.VideoFrame]:
        self.damaged += packet is not None and packet.is_corrupt
        try:
            frames = stream.codec_context.decode(packet)
        except (av.FFmpegError, ValueError):
            self.damaged += 1
            return []
        intact = [frame for frame in frames if not frame.is_corrupt]
        self.damaged += len(frames) - len(intact)
        return intact


class PipedStream(Demuxed):
    """A video that arrives through a pipe or a file that still grows: MJPEG, MPEG-TS, Matroska, fragmented MP4.

    `end_after` is the time in seconds without new bytes after which a growing file counts as ended; a pipe ends when
    its writer closes it.
    """

    def __init__(self, file: BinaryIO, name: str, *, growing: bool = False, end_after: float | None = None) -> None:
        self._file, self._name = file, name
        self._growing, self._end_after = growing, end_after

    @classmethod
    def stdin(cls) -> "PipedStream":
        """Return the stream on standard input."""
        return cls(sys.stdin.buffer, "standard input")

    @classmethod
    def growing(cls, path: Path, end_after: float | None) -> "PipedStream":
        """Return a file that is being written, from its beginning on."""
        check_file(path)
        return cls(path.open("rb"), str(path), growing=True, end_after=end_after)

    def opened(self, stop: threading.Event) -> Iterator[InputContainer]:
        """Yield the one container there is."""
        file = ArrivingBytes(self._file, stop, growing=self._growing, end_after=self._end_after)
        yield _open(file, self._name, {"format_whitelist": FORMATS, "protocol_whitelist": "file", **PROBE})


class ArrivingBytes:
    """A file object whose reads wait for bytes that are still to come."""

    def __init__(self, file: BinaryIO, stop: threading.Event, *, growing: bool, end_after: float | None) -> None:
        self._file, self._stop, self._growing, self._end_after = file, stop, growing, end_after

    def read(self, size: int) -> bytes:
        """Return some bytes; none at the end."""
        quiet_since = time.monotonic()
        while not self._stop.is_set():
            data = getattr(self._file, "read1", self._file.read)(size)
            if data or not self._growing:
                return data
            if self._end_after is not None and time.monotonic() - quiet_since > self._end_after:
                break
            self._stop.wait(POLL_SECONDS)
        return b""


class ConnectedStream(Demuxed):
    """A camera of this machine or a stream of the network, which is opened anew when it breaks off.

    `end_after` is the time in seconds without a frame after which it counts as ended (None: never).
    """

    def __init__(self, name: str, *, end_after: float | None, format: str | None = None) -> None:
        self._name, self._format, self._end_after = name, format, end_after
        self._first: InputContainer | None = self._open()  # refuses a wrong name at once

    @classmethod
    def camera(cls, path: Path, end_after: float | None) -> "ConnectedStream":
        """Return a camera by its device file, such as /dev/video0."""
        return cls(str(path), end_after=end_after, format="v4l2")

    def _open(self) -> InputContainer:
        options = dict(PROBE)
        if self._format is None:
            options |= {"format_whitelist": NETWORK_FORMATS, "protocol_whitelist": NETWORK_PROTOCOLS}
            options |= {"rtsp_transport": "tcp"} if self._name.startswith("rtsp") else {}
        return _open(self._name, self._name, options, format=self._format, timeout=NETWORK_TIMEOUT)

    def opened(self, stop: threading.Event) -> Iterator[InputContainer]:
        """Yield the connection, and a new one whenever it has ended."""
        silent_since = time.monotonic()
        while not stop.is_set():
            try:
                container, self._first = self._first or self._open(), None
                began = time.monotonic()
                yield container
                if time.monotonic() - began > RETRY_SECONDS:
                    silent_since = time.monotonic()
            except VideoError:
                pass  # not there now: it may come back
            if self._end_after is not None and time.monotonic() - silent_since > self._end_after:
                return
            stop.wait(RETRY_SECONDS)


def _open(
    file: Any, name: str, options: dict[str, str], *, format: str | None = None, timeout: float | None = None
) -> InputContainer:
    try:
        return av.open(file, format=format, container_options=options, metadata_errors="replace", timeout=timeout)
    except (av.FFmpegError, ValueError, OSError, MemoryError) as error:
        raise VideoError(f"{name} is not a stream that FFmpeg can read ({reason(error)})") from error


def _stream(container: InputContainer) -> Any:
    """Return the video stream, with limits on the size of its frames."""
    if not container.streams.video:
        raise VideoError(f"{container.name or 'the stream'} has no video stream")
    stream = container.streams.best("video") or container.streams.video[0]
    codec = stream.codec_context
    if codec is None:
        raise VideoError("the video stream has a codec that this FFmpeg has no decoder for")
    codec.options = {"max_pixels": str(MAX_PIXELS)}
    codec.thread_type = "SLICE"  # frames in flight would be late
    return stream


def _packets(container: InputContainer, stream: Any, stop: threading.Event) -> Iterator[av.Packet | None]:
    try:
        for packet in container.demux(stream):
            if stop.is_set():
                return
            if packet.size:
                yield packet
    except (av.FFmpegError, ValueError, IndexError):
        pass  # broken off
    yield None  # drains the decoder


def _live(frame: av.VideoFrame, stream: Any, converter: RgbConverter, *, timed: bool = True) -> LiveFrame:
    unit = frame.time_base or stream.time_base  # frames that are drained have none
    at = float(frame.pts * unit) if timed and frame.pts is not None and unit else None
    return LiveFrame(at, partial(converter.convert, frame))
