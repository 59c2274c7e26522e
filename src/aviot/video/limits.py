"""Every limit on a video that somebody else made, with its reason."""

import math
from dataclasses import dataclass
from pathlib import Path

from aviot.video.errors import VideoError

MAX_PIXELS = 8192 * 4352
"""Largest picture: level 6.2 of H.264, HEVC and AV1 ends here (8K is 7680x4320)."""

MAX_KEPT_BYTES = 3 * 2**29
"""Most that is kept of a file: 1.5 GiB, enough for 224 frames of 1920x1080. Larger pictures need a transform."""

FREE_SAMPLES, BYTES_PER_SAMPLE = 2**18, 4
"""Samples that any MP4 may claim (two hours at 30 per second), and its bytes for each further one.

FFmpeg takes 36 bytes of memory for each claimed sample before it reads one. A table of sizes spends four bytes per
sample; without one all samples have the same size, and what is stored that way (PCM, raw pictures) is larger.
"""

MAX_SAMPLES = 2**24
"""Samples of an MP4 file of any size: 60 hours of 30 pictures per second with sound, or 600 MB of FFmpeg's memory."""

MAX_HEADER = 2**26
"""Bytes to which the compressed header of an old QuickTime file may unpack; real ones have a few hundred thousand."""

FREE_PACKET_BYTES, PACKET_BYTES_PER_BYTE = 2**28, 2**11
"""Bytes that the packets of any file may have together, and further ones for each of its bytes.

Packets are parts of the file. Matroska may compress them, with zlib by 1,032 to 1 at most; MP4 may use a part twice.
"""

FREE_PIXELS, PIXELS_PER_BYTE = 2**32, 2**19
"""Pixels that may be decoded of any file (500 pictures of 4K), and further ones for each of its bytes.

Measured on still pictures, which compress best, in pixels per byte at 3840x2160. Blank: SVT-AV1 230,000, GIF 332,000
(25 bytes for each picture that repeats the last), VP9 126,000, H.264 and HEVC 33,000. With lines of text: SVT-AV1
68,000, H.264 19,000. At 1920x1080 all are a third to a half of that. A GIF of 8192x4352 whose pictures change a single
pixel has 1,500,000.
"""


@dataclass(frozen=True)
class ReadLimits:
    """What reading one file may take in a process of its own.

    `seconds` are those of the clock, with `seconds_per_megabyte` more for each megabyte of the file. The slowest honest
    files found are long still ones: an hour of slides of 1920x1080, 15 MB, keeps one core busy for half a minute, and
    the machine may have other work. `memory` is in bytes and counts everything the process holds. The most that a real
    video was seen to take is 1.2 GB: HEVC of 8192x4352 with 10 bits.
    """

    seconds: float = 300.0
    seconds_per_megabyte: float = 1.0
    memory: int = 1_400_000_000

    def __post_init__(self) -> None:
        for name in ("seconds", "memory"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} of the read limits must be a number above 0, got {getattr(self, name)!r}")

    def deadline(self, path: Path) -> float:
        """Return the seconds that a file may take; a folder of images has no size of its own."""
        try:
            size = path.stat().st_size if path.is_file() else 0
        except (OSError, ValueError):
            size = 0
        return self.seconds + self.seconds_per_megabyte * size / 1e6

    def too_slow(self, path: Path) -> VideoError:
        """Return the error of a file that was not read in time."""
        return VideoError(
            f"{path} was not read within {self.deadline(path):,.1f} s and was given up; if the file can be "
            "trusted, allow more with a longer read timeout (ReadLimits.seconds), or re-encode it"
        )

    def too_large(self, path: Path) -> VideoError:
        """Return the error of a file that takes more memory than it may."""
        return VideoError(
            f"{path} takes more than {self.memory / 1e6:,.0f} MB of memory to read and was given up; if the file can "
            "be trusted, re-encode it with smaller pictures, or allow more (ReadLimits.memory)"
        )
