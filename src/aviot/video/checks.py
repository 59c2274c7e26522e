"""Errors, limits and early checks of video sources, most of which are untrusted. Loads no decoder."""

import math
import stat
import time
from dataclasses import dataclass
from pathlib import Path

VIDEO_SUFFIXES = (
    *(".mp4", ".m4v", ".mov", ".qt", ".3gp", ".3g2", ".f4v", ".mkv", ".mk3d", ".webm", ".avi", ".ogg", ".ogv", ".ogm"),
    *(".gif", ".apng", ".mpg", ".mpeg", ".m1v", ".m2v", ".vob", ".ts", ".mts", ".m2t", ".m2ts", ".flv", ".wmv", ".asf"),
    *(".mxf", ".nut", ".dv", ".ivf", ".obu", ".h264", ".264", ".hevc", ".h265", ".265", ".vc1", ".mjpeg", ".mjpg"),
    ".y4m",
)
"""Common suffixes of readable files, for file pickers. Only the content decides whether a file is a video."""

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

MAX_PIXELS = 8192 * 4352
"""Pixels of the largest accepted frame: the limit of level 6.2 of H.264, HEVC and AV1 (8K is 7680x4320)."""

MAX_BUFFER_BYTES = 3 * 2**29
"""Bytes of sampled frames per video: 1.5 GiB, enough for 224 frames of 1920x1080. Larger frames need a transform."""

FREE_SAMPLES, BYTES_PER_SAMPLE = 2**18, 4
"""Samples that any MP4 may declare (two hours at 30 per second), and file bytes required for each further one.

FFmpeg allocates 36 bytes for each declared sample before it reads one. A table of sizes spends four bytes per sample;
without such a table all samples have the same size, and the formats stored that way (PCM, raw frames) are larger.
"""

MAX_SAMPLES = 2**24
"""Samples of an MP4 file of any size: 60 hours at 30 frames per second with audio, or 600 MB of FFmpeg's memory."""

MAX_HEADER = 2**26
"""Decompressed bytes of the compressed header of an old QuickTime file; real ones have a few hundred thousand."""

FREE_PACKET_BYTES, PACKET_BYTES_PER_BYTE = 2**28, 2**11
"""Total packet bytes that any file may have, and further packet bytes per byte of the file.

Packets are parts of the file. Matroska may compress them, with zlib by at most 1,032 to 1; MP4 may use a part twice.
"""

FREE_PIXELS, PIXELS_PER_BYTE = 2**32, 2**19
"""Pixels that may be decoded from any file (500 frames of 4K), and further pixels per byte of the file.

Measured on still videos, which compress best, in pixels per byte at 3840x2160. Blank: SVT-AV1 230,000, GIF 332,000
(25 bytes for each frame that repeats the last), VP9 126,000, H.264 and HEVC 33,000. With lines of text: SVT-AV1 68,000,
H.264 19,000. At 1920x1080 all are a third to a half of that. A GIF of 8192x4352 whose frames change a single pixel has
1,500,000.
"""


class VideoError(ValueError):
    """A video that cannot be read, or an invalid request; the message is written for the user."""


class VideoTooLarge(VideoError):
    """A video whose decoder needs more memory than is available."""


def reason(error: BaseException) -> str:
    """Return a short description of an error: the system's text, its message, or its type."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@dataclass(frozen=True)
class ReadLimits:
    """Time that reading one file may take, and memory in a separate process.

    `seconds` is wall-clock time, with `seconds_per_megabyte` more for each megabyte of the file. The slowest legitimate
    files found are long still ones: an hour of slides of 1920x1080, 15 MB, keeps one core busy for half a minute, and
    the machine may have other work. `memory` is in bytes and counts everything the process holds. The highest use
    observed for a real video is 1.2 GB: HEVC of 8192x4352 with 10 bits.
    """

    seconds: float = 300.0
    seconds_per_megabyte: float = 1.0
    memory: int = 1_400_000_000

    def __post_init__(self) -> None:
        for name in ("seconds", "memory"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} of the read limits must be a number above 0, got {getattr(self, name)!r}")

    def begin(self, path: Path) -> "Deadline":
        """Return the deadline of a read that begins now."""
        return Deadline(path, self, time.monotonic() + self.deadline(path))

    def deadline(self, path: Path) -> float:
        """Return the seconds that reading a file may take; the size of an image folder is not counted."""
        try:
            size = path.stat().st_size if path.is_file() else 0
        except (OSError, ValueError):
            size = 0
        return self.seconds + self.seconds_per_megabyte * size / 1e6

    def too_slow(self, path: Path) -> VideoError:
        """Return the error for a file that was not read in time."""
        return VideoError(
            f"{path} was not read within {self.deadline(path):,.1f} s and was given up; if the file can be "
            "trusted, allow more with a longer read timeout (ReadLimits.seconds), or re-encode it"
        )

    def too_large(self, path: Path) -> VideoError:
        """Return the error for a file that takes more memory than allowed."""
        return VideoError(
            f"{path} takes more than {self.memory / 1e6:,.0f} MB of memory to read and was given up; if the file can "
            "be trusted, re-encode it with smaller pictures, or allow more (ReadLimits.memory)"
        )


DEFAULT_LIMITS = ReadLimits()


@dataclass(frozen=True)
class Deadline:
    """The time, on the monotonic clock, at which reading a file is given up."""

    path: Path
    limits: ReadLimits
    at: float

    def check(self) -> None:
        """Raise VideoError once the time has passed."""
        if time.monotonic() > self.at:
            raise self.limits.too_slow(self.path)


def check_source(path: Path, source_fps: float | None = None) -> None:
    """Raise VideoError unless a path is a file or a folder of images; a file must come without `source_fps`."""
    if path.is_dir():
        find_images(path)
        return
    if source_fps is not None:
        raise VideoError("source_fps is for arrays and folders of images; a video file has its own times")
    check_file(path)


def check_file(path: Path) -> None:
    """Raise VideoError unless a path is a regular, non-empty file, so that opening it cannot block."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise VideoError(f"there is no file {path}; a video must be a local file or folder") from None
    except (OSError, ValueError) as error:
        raise VideoError(f"{path} cannot be read ({reason(error)})") from error
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path} is not a regular file; a video cannot be read from a device, pipe or socket")
    if status.st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes)")


def find_images(folder: Path) -> list[Path]:
    """Return the image files directly in a folder, unsorted and without hidden ones."""
    try:
        found = [path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]
    except OSError as error:
        raise VideoError(f"{folder} cannot be read ({reason(error)})") from error
    images = [path for path in found if not path.name.startswith(".")]
    if not images:
        raise VideoError(
            f"{folder} is a folder without images; expected files that end in {', '.join(sorted(IMAGE_SUFFIXES))}"
        )
    return images
