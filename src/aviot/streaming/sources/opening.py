"""The choice of a source by its name."""

import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aviot.video.checks import VideoError, check_file
from aviot.video.sampling import check_rate

if TYPE_CHECKING:
    from aviot.streaming.sources.base import FrameSource

STDIN = "-"
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
SCHEMES = ("http", "https", "rtsp", "rtsps", "srt", "tcp", "udp")
NETWORK_SILENCE = 60.0  # seconds without a connection after which a network stream has ended


class NetworkRefusedError(ValueError):
    """Raised for an address on the network that the user has not allowed to be connected to."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options for reading a source.

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


def check_source(name: str, options: SourceOptions) -> None:
    """Raise ValueError for a source that cannot be read, or is on the network and that is not allowed.

    Nothing is connected to or decoded, and torch is not imported.
    """
    if options.raw is not None and name != STDIN:
        raise ValueError(f"raw frames are read from standard input; name it {STDIN!r}, got {name!r}")
    if name == STDIN:
        return
    if address := ADDRESS.match(name):
        if address[1].lower() not in SCHEMES:
            raise VideoError(f"{address[1]} is not a protocol that streams are read by; expected {', '.join(SCHEMES)}")
        if not options.network:
            raise NetworkRefusedError(f"{name} is an address on the network, and no connection was allowed")
        return
    path = Path(name)
    if path.is_dir() or _is(path, stat.S_ISCHR) or _is(path, stat.S_ISFIFO):
        return
    check_file(path)
    if not options.follow:
        from aviot.video.files import check_opens

        check_opens(path)


def open_source(name: str, options: SourceOptions, *, fps: float) -> "FrameSource":
    """Open a source: `-`, a folder, a file, a device or an address; `fps` is the rate of sampled images.

    Raises ValueError as `check_source` does, and if FFmpeg cannot read it.
    """
    check_source(name, options)
    from aviot.streaming.sources import containers, pictures

    if options.raw is not None:
        return pictures.RawFrames(sys.stdin.buffer, *options.raw, options.source_fps)
    if name == STDIN:
        return containers.PipedStream.stdin()
    if ADDRESS.match(name):
        silence = NETWORK_SILENCE if options.end_after is None else options.end_after
        return containers.ConnectedStream(name, end_after=silence)
    path = Path(name)
    if path.is_dir():
        return pictures.FolderOfImages(path, options.source_fps or fps, options.end_after)
    if _is(path, stat.S_ISCHR):
        return containers.ConnectedStream.camera(path, options.end_after)
    if _is(path, stat.S_ISFIFO):
        return containers.PipedStream(path.open("rb"), name)  # waits until someone writes into it
    if options.follow:
        return containers.PipedStream.growing(path, options.end_after)
    return containers.FilePlayback(path)


def _is(path: Path, kind: Callable[[int], bool]) -> bool:
    return path.exists() and kind(path.stat().st_mode)
