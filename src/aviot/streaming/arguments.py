"""Checks of what a streaming session is given, before anything is queued or encoded."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aviot.backbones.attention import EXTRAS
from aviot.methods.base import Method
from aviot.utils.values import as_number, as_whole
from aviot.video import Frames
from aviot.video.checks import MAX_PIXELS
from aviot.video.frames import is_tensor


def checked_limits(**given: int | None) -> dict[str, int | None]:
    """Return the limits of a memory, checked."""
    if given["memory_tokens"] is not None and given["memory_bytes"] is not None:
        raise ValueError("give memory_tokens or memory_bytes, not both")
    found = {name: None if value is None else as_whole(value) for name, value in given.items()}
    for name, value in found.items():
        if given[name] is not None and (value is None or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, got {given[name]!r}")
    return found


def checked_frames(frames: Frames, times: float | Sequence[float] | None) -> tuple[Any, list[float] | None]:
    """Return frames [T,H,W,3] and their times; ValueError for anything else."""
    if not isinstance(frames, np.ndarray) and not is_tensor(frames):
        raise ValueError(
            f"frames must be an array or a tensor, got {type(frames).__name__}; stack a list with np.stack"
        )
    shape = tuple(frames.shape)
    if str(frames.dtype) not in ("uint8", "torch.uint8") or len(shape) not in (3, 4) or shape[-1] != 3 or 0 in shape:
        raise ValueError(f"frames must be uint8 RGB, [H,W,3] or [T,H,W,3], got {frames.dtype} {shape}")
    if shape[-3] * shape[-2] > MAX_PIXELS:
        raise ValueError(f"frames of {shape[-2]}x{shape[-3]} have more than {MAX_PIXELS:,} pixels; scale them down")
    pictures = frames if len(shape) == 4 else frames[None]
    if times is None:
        return pictures, None
    given = list(times) if isinstance(times, Sequence | np.ndarray) else [times]
    found = [as_number(each) for each in given]
    if len(found) != len(pictures) or any(each is None for each in found):
        raise ValueError(
            f"give one time in seconds per frame, finite numbers; got {given!r} for {len(pictures)} frames"
        )
    return pictures, [each for each in found if each is not None]


def check_method(method: Method) -> None:
    """Raise ValueError for a method that needs the frames themselves."""
    if method.before_pooling or method.needs & EXTRAS:
        raise ValueError(
            f"method {method.name!r} reads the encoder's attention, and a stream keeps no frames to compute it from; "
            "choose another method"
        )
