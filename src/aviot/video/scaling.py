"""What is kept of each frame for a model: a square of its own size, and a small picture beside it for people."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aviot.video.shelf import Picture

SIZE_BYTES = 4 * 2
"""Bytes before a thumbnail: height and width of the frame, height and width of the thumbnail."""


@dataclass(frozen=True)
class Scaling:
    """A transform of plain numbers, so that another process can be asked for it.

    Each frame becomes a square of `image_size` pixels, bicubic, whatever its aspect. With `thumbnail` a picture of at
    most so many pixels a side, in the frame's own shape, is packed behind the square (`with_thumbnail`).
    """

    image_size: int
    thumbnail: int | None = None

    def __call__(self, frame: Picture) -> Picture:
        """Return what is kept of a frame."""
        size = (self.image_size, self.image_size)
        square = np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))
        return square if self.thumbnail is None else with_thumbnail(square, frame, self.thumbnail)


def with_thumbnail(kept: NDArray[np.uint8], frame: Picture, largest_side: int) -> NDArray[np.uint8]:
    """Return the bytes of `kept`, then the sizes of frame and thumbnail, then the thumbnail and zeros.

    All frames of a video come out as bytes of one length, whatever their shapes.
    """
    image = Image.fromarray(frame)
    image.thumbnail((largest_side, largest_side), Image.Resampling.BILINEAR)
    small = np.asarray(image)
    room = np.zeros(3 * largest_side**2, np.uint8)
    room[: small.size] = small.ravel()
    sizes = np.array([*frame.shape[:2], *small.shape[:2]], "<u2").view(np.uint8)
    return np.concatenate((kept.ravel(), sizes, room))
