"""Sampled frames in memory: their types, the buffer they are collected in, and the video they make up."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aviot.video.checks import MAX_BUFFER_BYTES, VideoError

if TYPE_CHECKING:
    import torch  # not needed to read a file, and importing it takes a second and 150 MB

    from aviot.video.sampling import Timeline

Picture: TypeAlias = NDArray[np.uint8]
"""One frame, [H,W,3] RGB."""

if TYPE_CHECKING:
    Frames: TypeAlias = NDArray | torch.Tensor
else:
    Frames = Any
Transform: TypeAlias = Callable[[Picture], Frames]

Progress: TypeAlias = Callable[[Frames, int], None]
"""A function that is called while frames arrive: with all slots, and the number at their start that are filled.

It may be called again with other slots, if frames are sampled anew, and raises an exception to end the reading. It is
called by one thread at a time.
"""


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """Return whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@dataclass(frozen=True)
class Damage:
    """Loss found while a file was read.

    `claimed_seconds` is the duration that the container declares, `missing_seconds` the part of it that is not in the
    file or cannot be decoded (0.0 if frames are only blemished), `decoder_errors` the number of packets or frames that
    did not decode cleanly, among those that had to be decoded for the sampled frames.
    """

    claimed_seconds: float
    missing_seconds: float
    decoder_errors: int

    def __str__(self) -> str:
        parts = []
        if self.missing_seconds:
            missing = f"{self.missing_seconds:.{1 if self.missing_seconds >= 0.1 else 2}f}"
            share = self.missing_seconds / self.claimed_seconds
            parts.append(f"{missing} of {self.claimed_seconds:.1f} s are missing ({share * 100:.0f} %)")
        if self.decoder_errors:
            parts.append(f"{self.decoder_errors:,} decoder error{'s' * (self.decoder_errors > 1)}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Video:
    """Frames sampled from a video, and their presentation times.

    `frames` is uint8 RGB [T,H,W,3], or the stacked results of the transform. `indices` are the frames' numbers in the
    video and `times` their presentation times in seconds, both counted from the video's first frame. `duration` is that
    of the whole video in seconds, `fps` its average frame rate and `total` its number of frames. `damage` is the loss
    found in a file; None for intact files, folders and arrays. `comment` is the container's comment tag; it is empty
    for files without one, folders of images and arrays.
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


class FrameBuffer:
    """A preallocated array for a known number of frames, so that no frame is ever held twice.

    It is allocated when the first frame arrives, whose shape after the transform all others must share. Several threads
    may fill it, each its own slots.
    """

    def __init__(
        self,
        size: int,
        transform: Transform | None,
        max_bytes: int | None = MAX_BUFFER_BYTES,
        *,
        progress: Progress | None = None,
    ) -> None:
        self._filled = np.zeros(size, dtype=bool)
        self._progress = progress
        self._arrived = 0  # slots at the start that are filled
        self._lock = threading.Lock()
        for_frames = getattr(transform, "for_frames", None)  # a scaling that depends on the number of frames
        self._transform = transform if for_frames is None else for_frames(size)
        self._max_bytes = max_bytes
        self._frames: Frames | None = None

    def put(self, slot: int, picture: Picture) -> None:
        """Transform a frame and store it in a slot."""
        frame = self._transform(picture) if self._transform else picture
        if not isinstance(frame, np.ndarray) and not is_tensor(frame):
            raise VideoError(f"transform must return a NumPy array or a torch tensor, got {type(frame).__name__}")
        with self._lock:
            self._store(slot, frame)

    def _store(self, slot: int, frame: Frames) -> None:
        if self._frames is None:
            self._frames = self._allocate(frame)
        if frame.shape != self._frames.shape[1:] or type(frame) is not type(self._frames):
            raise VideoError(
                f"frames must all have one size, got {tuple(self._frames.shape[1:])} and then {tuple(frame.shape)}; "
                "give read_video a transform= that resizes each"
            )
        self._frames[slot] = frame  # type: ignore[assignment]
        self._filled[slot] = True
        before = self._arrived
        while self._arrived < len(self._filled) and self._filled[self._arrived]:
            self._arrived += 1
        if self._progress is not None and self._arrived > before:
            self._progress(self._frames, self._arrived)

    def _allocate(self, first: Frames) -> Frames:
        slots = len(self._filled)
        size = slots * first.nbytes
        if self._max_bytes is not None and size > self._max_bytes:
            raise VideoError(
                f"{slots} frames of {tuple(first.shape)} take {size / 2**30:.1f} GiB, more than the limit of "
                f"{self._max_bytes / 2**30:.1f} GiB; give read_video a transform= that shrinks each frame as it is "
                "decoded, or ask for fewer with frames="
            )
        shape = (slots, *first.shape)
        return np.empty(shape, first.dtype) if isinstance(first, np.ndarray) else first.new_empty(shape)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Mask of the slots that hold a frame."""
        return self._filled

    def frames(self) -> Frames:
        """Return the stored frames, stacked in order."""
        if self._frames is None:
            raise VideoError("no frame could be decoded")
        if self._filled.all():
            return self._frames
        if isinstance(self._frames, np.ndarray):
            return self._frames[self._filled]
        return self._frames[self._filled.tolist()]

    def video(self, sampled: tuple[int, ...], timeline: "Timeline", name: str, comment: str = "") -> Video:
        """Return the stored frames as a video; `sampled` has the frame number of each slot, filled or not."""
        indices = tuple(compress(sampled, self._filled))
        return Video(
            frames=self.frames(),
            indices=indices,
            times=timeline.times(indices),
            duration=timeline.duration,
            fps=timeline.fps,
            total=len(timeline),
            name=name,
            comment=comment,
        )


SIZE_BYTES = 4 * 2
"""Bytes before a thumbnail: height and width of the frame, height and width of the thumbnail."""


@dataclass(frozen=True)
class Scaling:
    """A transform given by plain numbers, so that it can be sent to another process.

    Each frame is resized to a square of `image_size` pixels, bicubic, whatever its aspect ratio. With `thumbnail`, an
    image of at most that many pixels per side, in the frame's own aspect ratio, is packed behind the square
    (`with_thumbnail`).
    """

    image_size: int
    thumbnail: int | None = None

    def __call__(self, frame: Picture) -> Picture:
        """Return the scaled frame."""
        from PIL import Image  # not needed by those who import `Video` alone

        size = (self.image_size, self.image_size)
        square = np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))
        return square if self.thumbnail is None else with_thumbnail(square, frame, self.thumbnail)


def with_thumbnail(scaled: NDArray[np.uint8], frame: Picture, largest_side: int) -> NDArray[np.uint8]:
    """Return the bytes of `scaled`, then the sizes of frame and thumbnail, then the thumbnail and zeros.

    The result has the same number of bytes for all frames of a video, whatever their shapes.
    """
    from PIL import Image

    image = Image.fromarray(frame)
    image.thumbnail((largest_side, largest_side), Image.Resampling.BILINEAR)
    small = np.asarray(image)
    padded = np.zeros(3 * largest_side**2, np.uint8)
    padded[: small.size] = small.ravel()
    sizes = np.array([*frame.shape[:2], *small.shape[:2]], "<u2").view(np.uint8)
    return np.concatenate((scaled.ravel(), sizes, padded))
