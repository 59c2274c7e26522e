"""What reading a video gives."""

from dataclasses import dataclass

from aviot.video.shelf import Frames


@dataclass(frozen=True)
class Damage:
    """Loss found while a file was read.

    `claimed_seconds` is the duration that the container claims, `missing_seconds` how much of it is not there or cannot
    be decoded (0.0 if pictures are only blemished), `decoder_errors` the packets or pictures that did not decode
    cleanly, among those that had to be decoded for the chosen frames.
    """

    claimed_seconds: float
    missing_seconds: float
    decoder_errors: int

    def __str__(self) -> str:
        said = []
        if self.missing_seconds:
            missing = f"{self.missing_seconds:.{1 if self.missing_seconds >= 0.1 else 2}f}"
            share = self.missing_seconds / self.claimed_seconds
            said.append(f"{missing} of {self.claimed_seconds:.1f} s are missing ({share * 100:.0f} %)")
        if self.decoder_errors:
            said.append(f"{self.decoder_errors:,} decoder error{'s' * (self.decoder_errors > 1)}")
        return ", ".join(said)


@dataclass(frozen=True, eq=False)
class Video:
    """Chosen frames of a video and when they are shown.

    `frames` is uint8 RGB [T,H,W,3], or what the transform made of each frame, stacked. `indices` are the frames'
    numbers in the video and `times` their presentation times in seconds, both counted from the video's first frame.
    `duration` is the whole video's in seconds, `fps` its own average rate and `total` its number of frames.
    `damage` is what is missing or broken in a file; None for whole files, folders and arrays. `comment` is the
    container's comment tag; it is empty for files without one, folders of images and arrays.
    """

    frames: Frames
    indices: tuple[int, ...]
    times: tuple[float, ...]
    duration: float
    fps: float
    total: int
    name: str
    comment: str = ""
    damage: Damage | None = None

    def __len__(self) -> int:
        return len(self.indices)
