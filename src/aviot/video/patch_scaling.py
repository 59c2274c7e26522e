"""Frames scaled as the processors of Hugging Face video models scale them, bit for bit, while a video is decoded."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from aviot.video.checks import VideoError
from aviot.video.frames import Picture, with_thumbnail

if TYPE_CHECKING:
    import torch

LARGEST_ASPECT = 200  # of a frame's longer side to its shorter one; the families refuse more
SHARE_FLOOR = 1.05  # of the least pixels, that a frame keeps however many frames share a limit
TOKEN_SHARE = 0.9  # of a video's tokens, that Qwen2-VL's cap shares among frames

Limit = Literal["frame", "frame-capped", "video", "video-capped", "shared"]
"""What the limit on pixels counts: one frame, a whole video, or a video's pixels shared evenly among its frames."""


@dataclass(frozen=True)
class PatchScaling:
    """A transform given by plain numbers, so that it can be sent to another process.

    Every frame is resized to `size` (height and width) if given; else to multiples of `factor` near its own size,
    within `least` and `most` pixels, counted as `limit` says. `by_way` is the longer side of a first resize before
    that to `size`. `frames` is the number of frames of the video, which some limits depend on; `for_frames` sets it.
    With `thumbnail`, an image of at most that many pixels per side is packed behind each frame (`with_thumbnail`).
    """

    size: tuple[int, int] | None = None
    by_way: int | None = None
    factor: int = 28
    least: int = 0
    most: int = 0
    limit: Limit = "frame"
    most_tokens: int = 0  # of a video (frame-capped) or of a frame (video-capped)
    temporal: int = 1  # frames that the encoder merges
    filter: str = "bicubic"
    frames: int = 1
    thumbnail: int | None = None

    def for_frames(self, count: int) -> "PatchScaling":
        """Return the scaling for a video of this many frames."""
        return replace(self, frames=count)

    def __call__(self, frame: Picture) -> Picture:
        """Return the scaled frame."""
        import torch  # only these scalings need it

        pixels = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1)[None].contiguous()
        for size in self.sizes(*frame.shape[:2]):
            if size != tuple(pixels.shape[-2:]):
                pixels = _resized(pixels, size, self.filter)
        scaled = pixels[0].permute(1, 2, 0).contiguous().numpy()
        return scaled if self.thumbnail is None else with_thumbnail(scaled, frame, self.thumbnail)

    def sizes(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Return the sizes that a frame of this size is resized to, one after another."""
        if self.size is not None:
            return (self.size,) if self.by_way is None else (_by_longer_side(height, width, self.by_way), self.size)
        if max(height, width) / min(height, width) > LARGEST_ASPECT:
            raise VideoError(
                f"a frame of {width}x{height} is more than {LARGEST_ASPECT} times longer than wide; crop the video"
            )
        if self.limit in ("video", "video-capped"):
            return (self._within_video(height, width),)
        return (_within(height, width, self.factor, self.least, self._most_of_frame()),)

    def _most_of_frame(self) -> int:
        if self.limit == "shared":
            return self.most // self.frames
        if self.limit == "frame-capped":
            whole = int(self.most_tokens * self.factor**2 * TOKEN_SHARE)
            return max(min(self.most, whole * self.temporal // self.frames), int(self.least * SHARE_FLOOR))
        return self.most

    def _within_video(self, height: int, width: int) -> tuple[int, int]:
        """Return the size for limits on the pixels of all frames together, as Qwen3-VL counts them."""
        frames, factor = max(self.frames, self.temporal), self.factor
        most = self.most
        if self.limit == "video-capped":
            per_frame = min(self.most_tokens * factor**2, most // frames)
            most = max(per_frame, int(self.least * SHARE_FLOOR)) * frames
        if min(height, width) < factor:
            scale = max(factor / height, factor / width)
            height, width = int(height * scale), int(width * scale)
        rounded = round(frames / self.temporal) * self.temporal
        here = round(height / factor) * factor, round(width / factor) * factor
        if rounded * here[0] * here[1] > most:
            return _shrunk(height, width, factor, math.sqrt(frames * height * width / most))
        if rounded * here[0] * here[1] < self.least:
            return _grown(height, width, factor, math.sqrt(self.least / (frames * height * width)))
        return here


def _resized(pixels: "torch.Tensor", size: tuple[int, int], filter: str) -> "torch.Tensor":
    """Resize a frame; versions of torch that lack Lanczos use bicubic, as the families' processors then do."""
    from torch.nn.functional import interpolate

    try:
        return interpolate(pixels, size=size, mode=filter, antialias=True)
    except (ValueError, NotImplementedError):
        if filter != "lanczos":
            raise
        return interpolate(pixels, size=size, mode="bicubic", antialias=True)


def _within(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Return the multiples of `factor` nearest to a size, scaled to have between `least` and `most` pixels."""
    here = round(height / factor) * factor, round(width / factor) * factor
    if here[0] * here[1] > most:
        return _shrunk(height, width, factor, math.sqrt(height * width / most))
    if here[0] * here[1] < least:
        return _grown(height, width, factor, math.sqrt(least / (height * width)))
    return here


def _shrunk(height: int, width: int, factor: int, by: float) -> tuple[int, int]:
    rows, columns = math.floor(height / by / factor), math.floor(width / by / factor)
    return max(factor, rows * factor), max(factor, columns * factor)


def _grown(height: int, width: int, factor: int, by: float) -> tuple[int, int]:
    return math.ceil(height * by / factor) * factor, math.ceil(width * by / factor) * factor


def _by_longer_side(height: int, width: int, longer: int) -> tuple[int, int]:
    """Return a size of the same proportions with this longer side; the other one is made even."""
    aspect = width / height
    if width >= height:
        shorter = int(longer / aspect)
        return max(shorter + shorter % 2, 1), longer
    shorter = int(longer * aspect)
    return longer, max(shorter + shorter % 2, 1)
