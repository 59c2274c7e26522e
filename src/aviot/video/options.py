"""How a video is read, apart from which frames are: scaling, limits, the decoder, and who follows the progress."""

from dataclasses import dataclass
from typing import Literal, get_args

from aviot.video.checks import DEFAULT_LIMITS, ReadLimits, VideoError
from aviot.video.frames import Progress, Transform

Decoder = Literal["auto", "cpu", "cuda"]
"""Where files are decoded: on the processor, by an NVIDIA GPU's decoder, or on whichever is likely to be faster."""


@dataclass(frozen=True)
class ReadOptions:
    """The options of `read_video` besides the sampling."""

    transform: Transform | None = None
    limits: ReadLimits = DEFAULT_LIMITS
    decoder: Decoder = "auto"
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_decoder(self.decoder)


def check_decoder(name: object) -> None:
    """Raise VideoError unless a decoder has this name."""
    if name not in get_args(Decoder):
        raise VideoError(f"decoder must be {', '.join(get_args(Decoder))}, got {name!r}")
