"""What reading a video gives."""

from dataclasses import dataclass

from aviot.video.shelf import Frames


@dataclass(frozen=True, eq=False)
class Video:
    """Chosen frames of a video and when they are shown.

    `frames` is uint8 RGB [T,H,W,3], or what the transform made of each frame, stacked. `indices` are the frames'
    numbers in the video and `times` their presentation times in seconds, both counted from the video's first frame.
    `duration` is the whole video's in seconds, `fps` its own average rate and `total` its number of frames.
    `comment` is the container's comment tag; it is empty for files without one, folders of images and arrays.
    """

    frames: Frames
    indices: tuple[int, ...]
    times: tuple[float, ...]
    duration: float
    fps: float
    total: int
    name: str
    comment: str = ""

    def __len__(self) -> int:
        return len(self.indices)
