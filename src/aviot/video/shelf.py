"""Where chosen frames are kept as they are decoded."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aviot.video.errors import VideoError
from aviot.video.limits import MAX_KEPT_BYTES

if TYPE_CHECKING:
    import torch  # reading a file does without: importing it takes a second and 150 MB

Picture: TypeAlias = NDArray[np.uint8]
"""One frame, [H,W,3] RGB."""

if TYPE_CHECKING:
    Frames: TypeAlias = NDArray | torch.Tensor
else:
    Frames = Any
Transform: TypeAlias = Callable[[Picture], Frames]


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """Return whether a value is a torch tensor; torch is not imported for the answer."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


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
        if not isinstance(frame, np.ndarray) and not is_tensor(frame):
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
        return np.empty(shape, first.dtype) if isinstance(first, np.ndarray) else first.new_empty(shape)

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
        if isinstance(self._frames, np.ndarray):
            return self._frames[self._filled]
        return self._frames[self._filled.tolist()]
