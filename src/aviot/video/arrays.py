"""Frames from an array in memory."""

from fractions import Fraction

import numpy as np

from aviot.video.errors import VideoError
from aviot.video.result import Video
from aviot.video.sample import Sampling
from aviot.video.shelf import Frames, Shelf, Transform
from aviot.video.timeline import Timeline

NAME = "array"
"""What a video without a file is called."""


def read_array(source: Frames, sampling: Sampling, transform: Transform | None, source_fps: float | None) -> Video:
    """Take uint8 RGB [T,H,W,3] as a video of constant rate `source_fps`."""
    _check(source)
    if source_fps is None:
        raise VideoError("an array has no frame rate of its own; give it with source_fps=")
    timeline = Timeline.constant(len(source), Fraction(source_fps))
    chosen = sampling.indices(len(timeline), timeline.fps)
    shelf = Shelf(len(chosen), transform, limit=None)  # it is in memory already
    for place, number in enumerate(chosen):
        frame = source[number]
        shelf.put(place, frame if isinstance(frame, np.ndarray) else frame.detach().cpu().numpy())
    return Video(
        frames=shelf.frames(),
        indices=chosen,
        times=timeline.times(chosen),
        duration=timeline.duration,
        fps=timeline.fps,
        total=len(timeline),
        name=NAME,
    )


def _check(source: Frames) -> None:
    shape = tuple(source.shape)
    if str(source.dtype) not in ("uint8", "torch.uint8"):
        raise VideoError(f"an array of frames must be uint8 with values 0 to 255, got {source.dtype}")
    if len(shape) == 4 and shape[1] == 3 and shape[3] != 3:
        raise VideoError(
            f"an array of frames must be [T,H,W,3], got {shape}; move the channels last with "
            "np.moveaxis(frames, 1, 3) or frames.permute(0, 2, 3, 1)"
        )
    if len(shape) != 4 or shape[3] != 3:
        raise VideoError(f"an array of frames must be [T,H,W,3] RGB, got {shape}")
    if 0 in shape:
        raise VideoError(f"an array of frames must have at least one frame and one pixel, got {shape}")
