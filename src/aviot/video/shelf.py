"""Where chosen frames are kept as they are decoded."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from aviot.video.errors import VideoError

Picture: TypeAlias = NDArray[np.uint8]
"""One frame, [H,W,3] RGB."""

Frames: TypeAlias = NDArray | torch.Tensor
Transform: TypeAlias = Callable[[Picture], Frames]

MAX_PIXELS = 8192 * 4352
"""Largest picture: level 6.2 of H.264, HEVC and AV1 ends here (8K is 7680x4320)."""

MAX_KEPT_BYTES = 3 * 2**29
"""Most that is kept of a file: 1.5 GiB, enough for 224 frames of 1920x1080. Larger pictures need a transform."""


class Shelf:
    """Room for a known number of frames, made when the first comes, so that no frame is ever held twice."""

    def __init__(self, places: int, transform: Transform | None, limit: int | None = MAX_KEPT_BYTES) -> None:
        self._filled = np.zeros(places, dtype=bool)
        self._transform = transform
        self._limit = limit
        self._frames: Frames | None = None

    def put(self, place: int, picture: Picture) -> None:
        """Transform a frame and keep it in its place."""
        frame = self._transform(picture) if self._transform else picture
        if not isinstance(frame, (np.ndarray, torch.Tensor)):
            raise VideoError(f"transform must return a NumPy array or a torch tensor, got {type(frame).__name__}")
        if self._frames is None:
            self._frames = self._room(frame)
        if frame.shape != self._frames.shape[1:] or type(frame) is not type(self._frames):
            raise VideoError(
                f"frames must all have one size, got {tuple(self._frames.shape[1:])} and then {tuple(frame.shape)}; "
                "give read_video a transform= that resizes each"
            )
        self._frames[place] = frame  # type: ignore[assignment]
        self._filled[place] = True

    def _room(self, first: Frames) -> Frames:
        places = len(self._filled)
        size = places * first.nbytes
        if self._limit is not None and size > self._limit:
            raise VideoError(
                f"{places} frames of {tuple(first.shape)} take {size / 2**30:.1f} GiB, more than the "
                f"{self._limit / 2**30:.1f} GiB that are kept; give read_video a transform= that shrinks each frame as "
                "it is decoded, or ask for fewer with frames="
            )
        shape = (places, *first.shape)
        return first.new_empty(shape) if isinstance(first, torch.Tensor) else np.empty(shape, first.dtype)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Which places hold a frame."""
        return self._filled

    def frames(self) -> Frames:
        """The frames that came, stacked in order."""
        if self._frames is None:
            raise VideoError("no frame could be decoded")
        if self._filled.all():
            return self._frames
        if isinstance(self._frames, torch.Tensor):
            return self._frames[torch.from_numpy(self._filled)]
        return self._frames[self._filled]
