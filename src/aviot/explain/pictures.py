"""Pictures of the frames for people, kept while the model's own squares are made, and written as small JPEGs."""

import base64
import io
import math
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from aviot.video import Video
from aviot.video.frames import SIZE_BYTES

LARGEST_SIDE = 360  # pixels that are kept of a frame's longer side
PIXELS = 224 * 216 * 216  # that all frames of a page share: 216 a side for the longest videos
JPEG_BYTES = 1_500_000  # that all frames of a page take at most, before base64
QUALITIES = (80, 65, 50, 35, 20)


@dataclass(frozen=True)
class Pictures:
    """One picture a frame, in the frame's own shape."""

    images: tuple[Image.Image, ...]
    size: tuple[int, int]  # width and height of the video's frames, of the first if they differ


def apart(video: Video, image_size: int) -> tuple[Video, Pictures]:
    """Take a video of a `Scaling` with thumbnails apart: as the model takes it, and the pictures beside it."""
    packed = np.asarray(video.frames)
    square = 3 * image_size**2
    sizes = np.ascontiguousarray(packed[:, square : square + SIZE_BYTES]).view("<u2")
    rest = packed[:, square + SIZE_BYTES :]
    images = tuple(
        Image.fromarray(row[: 3 * int(height) * int(width)].reshape(height, width, 3))
        for row, (_, _, height, width) in zip(rest, sizes, strict=True)
    )
    frames = np.ascontiguousarray(packed[:, :square]).reshape(-1, image_size, image_size, 3)
    return replace(video, frames=frames), Pictures(images, (int(sizes[0, 1]), int(sizes[0, 0])))


def pictures_of(video: Video) -> Pictures:
    """Return the encoder's own frames as pictures."""
    images = tuple(Image.fromarray(np.asarray(frame)) for frame in video.frames)
    return Pictures(images, images[0].size)


def as_jpegs(pictures: Pictures) -> list[str]:
    """Every picture as base64 of a JPEG; smaller and coarser the more there are, never more than a page can hold."""
    side = min(LARGEST_SIDE, math.isqrt(PIXELS // len(pictures.images)))
    for quality in QUALITIES:
        files = [_jpeg(image, side, quality) for image in pictures.images]
        if sum(map(len, files)) <= JPEG_BYTES:
            break
        side = max(96, side * 7 // 8)
    return [base64.b64encode(file).decode("ascii") for file in files]


def _jpeg(image: Image.Image, side: int, quality: int) -> bytes:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()
