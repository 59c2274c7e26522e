"""The one way in: whatever holds a video becomes a `Video`."""

import logging
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np

from aviot.video.arrays import read_array
from aviot.video.errors import VideoError
from aviot.video.images import read_folder
from aviot.video.paths import check_source
from aviot.video.result import Video
from aviot.video.sample import DEFAULT_FPS, DEFAULT_MAX_FRAMES, Sampling, check_rate
from aviot.video.shelf import Frames, Transform, is_tensor

logger = logging.getLogger(__name__)

Source: TypeAlias = str | os.PathLike[str] | Frames


def read_video(
    source: Source,
    *,
    fps: float = DEFAULT_FPS,
    max_frames: int = DEFAULT_MAX_FRAMES,
    frames: int | None = None,
    transform: Transform | None = None,
    source_fps: float | None = None,
) -> Video:
    """Read the frames of a video that a model looks at, and when they are shown.

    `source` is the path of a video file, of a folder of images, or uint8 RGB frames [T,H,W,3], NumPy or torch.
    `source_fps` is an array's frame rate, which it must have, or a folder's; a folder without one is taken to be
    sampled already, at `fps`. Every max(1, round(native fps / fps))-th frame is taken; if those are more than
    `max_frames`, or `frames` asks for a number, that many are spread evenly over the whole video, at most the number
    the video has: none is taken twice, and a warning is logged if `frames` asks for more.

    `transform` is given each chosen frame, uint8 RGB [H,W,3], as soon as it is decoded, and what it returns (an array
    or a tensor, of one shape) is kept instead. Times and durations follow the file's own timestamps. Of a damaged file,
    what can be decoded counts as the video; `damage` says how much is missing or broken, and a warning is logged.

    Raises VideoError, with a sentence, for anything that is not such a video and for arguments that make no sense.
    """
    sampling = Sampling(fps=fps, max_frames=max_frames, frames=frames)
    if source_fps is not None:
        source_fps = check_rate("source_fps", source_fps)
    video = _read(source, sampling, transform, source_fps)
    if frames is not None and frames > video.total:
        logger.warning(
            "%s: asked for %s frames; the video has %s, all are used", video.name, f"{frames:,}", f"{video.total:,}"
        )
    return video


def _read(source: Source, sampling: Sampling, transform: Transform | None, source_fps: float | None) -> Video:
    """Choose the reader by the kind of source."""
    if isinstance(source, np.ndarray) or is_tensor(source):
        return read_array(source, sampling, transform, source_fps)
    if not isinstance(source, (str, os.PathLike)):
        raise VideoError(
            f"a video must be a path or an array of frames [T,H,W,3], got {type(source).__name__}; "
            "stack a list of frames with np.stack"
        )
    path = Path(source)
    if path.is_dir():
        return read_folder(path, sampling, transform, source_fps)
    check_source(path, source_fps)
    try:
        from aviot.video.files import read_file  # the only part that needs PyAV
    except ModuleNotFoundError as error:
        raise VideoError(
            f"video files need PyAV, which is not installed ({error}); pip install 'aviot[video]'"
        ) from error
    return read_file(path, sampling, transform)
