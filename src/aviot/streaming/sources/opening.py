"""The choice of a source by its name."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from aviot.streaming.sources.base import Source
from aviot.video.checks import VideoError
from aviot.video.sampling import check_rate

STDIN = "-"
SCHEMES = ("http", "https", "rtsp", "rtsps", "srt", "tcp", "udp")
NETWORK_SILENCE = 60.0  # seconds without a connection after which a network stream has ended


class NetworkRefusedError(ValueError):
    """Raised for an address on the network that the user has not allowed to be connected to."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How a source is read.

    `follow` reads a file that is still being written, `raw` (width, height) takes standard input as RGB frames,
    `source_fps` is the rate of images and raw frames, `network` allows connections. `end_after` is the time in seconds
    without anything new after which a growing file, a folder, a camera or a network stream has ended.
    """

    follow: bool = False
    raw: tuple[int, int] | None = None
    source_fps: float | None = None
    network: bool = False
    end_after: float | None = None

    def __post_init__(self) -> None:
        if self.source_fps is not None:
            check_rate("source_fps", self.source_fps)


def open_source(name: str, options: SourceOptions, *, fps: float) -> Source:
    """Open a source: `-`, a folder, a file, a device or an address; `fps` is the rate of sampled images.

    Raises ValueError if it cannot be read, or is on the network and that is not allowed.
    """
    if options.raw is not None:
        from aviot.streaming.sources.pictures import RawFrames

        if name != STDIN:
            raise ValueError(f"raw frames are read from standard input; name it {STDIN!r}, got {name!r}")
        return RawFrames(sys.stdin.buffer, *options.raw, options.source_fps)
    from aviot.streaming.sources import containers

    if name == STDIN:
        return containers.PipedStream.stdin()
    if scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", name):
        return _connected(name, scheme[1].lower(), options)
    path = Path(name)
    if path.is_dir():
        from aviot.streaming.sources.pictures import FolderOfImages

        return FolderOfImages(path, options.source_fps or fps, options.end_after)
    if containers.is_camera(path):
        return containers.ConnectedStream.camera(path, options.end_after)
    if containers.is_pipe(path):
        return containers.named_pipe(path)
    if options.follow:
        return containers.PipedStream.growing(path, options.end_after)
    return containers.FilePlayback(path)


def _connected(name: str, scheme: str, options: SourceOptions) -> Source:
    if scheme not in SCHEMES:
        raise VideoError(f"{scheme} is not a protocol that streams are read by; expected {', '.join(SCHEMES)}")
    if not options.network:
        raise NetworkRefusedError(f"{name} is an address on the network, and no connection was allowed")
    from aviot.streaming.sources.containers import ConnectedStream

    return ConnectedStream(name, end_after=NETWORK_SILENCE if options.end_after is None else options.end_after)
