"""Reading of a video from a file, a folder of images or an array in memory."""

import logging
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from aviot.utils.moved import renamed
from aviot.video.checks import DEFAULT_LIMITS, MAX_PIXELS, ReadLimits, VideoError, check_source, find_images, reason
from aviot.video.frames import FrameBuffer, Frames, Picture, Progress, Transform, Video, is_tensor
from aviot.video.options import Decoder, ReadOptions
from aviot.video.sampling import DEFAULT_FPS, DEFAULT_MAX_FRAMES, Sampling, SamplingMode, Timeline, check_rate

__getattr__ = renamed(__name__)
logger = logging.getLogger(__name__)

VideoSource: TypeAlias = str | os.PathLike[str] | Frames

ARRAY_NAME = "array"
"""Name of a video that was read from memory."""

IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def read_video(
    source: VideoSource,
    *,
    fps: float = DEFAULT_FPS,
    max_frames: int = DEFAULT_MAX_FRAMES,
    frames: int | None = None,
    transform: Transform | None = None,
    source_fps: float | None = None,
    sampling: SamplingMode = "times",
    limits: ReadLimits = DEFAULT_LIMITS,
    decoder: Decoder = "auto",
    progress: Progress | None = None,
) -> Video:
    """Sample frames of a video, with their presentation times.

    `source` is the path of a video file or of a folder of images, or uint8 RGB frames [T,H,W,3], NumPy or torch.
    `source_fps` is the frame rate of an array, which requires it, or of a folder; a folder without one is taken to be
    sampled already, at `fps`. Every max(1, round(native fps / fps))-th frame is taken; if those are more than
    `max_frames`, or `frames` gives a number, that many are spread evenly over the whole video, at most the number of
    frames in the video: none is taken twice, and a warning is logged if `frames` asks for more. With
    `sampling="keyframes"` the keyframes nearest to those frames are taken, with their own times: far less is decoded of
    a long file, and there may be fewer frames (`Sampling`).

    `transform` is called with each sampled frame, uint8 RGB [H,W,3], as soon as it is decoded, and its result (an array
    or a tensor, of the same shape for all frames) is stored instead. Times and durations follow the file's own
    timestamps. For a damaged file, the part that can be decoded counts as the video; `damage` tells how much is missing
    or broken, and a warning is logged.

    A file or folder that is not read within the time that `limits` give is refused; their limit of memory is for
    `read_isolated`. `decoder` says where files are decoded (cuda: by the decoder of an NVIDIA GPU, through PyAV); what
    it cannot decode is decoded on the processor, with a warning, and the frames are the same. `progress` is called
    while frames arrive.

    Raises VideoError, with a message for the user, if the source is not such a video or an argument is invalid.
    """
    chosen = Sampling(fps=fps, max_frames=max_frames, frames=frames, mode=sampling)
    if source_fps is not None:
        source_fps = check_rate("source_fps", source_fps)
    video = _read(source, chosen, source_fps, ReadOptions(transform, limits, decoder, progress))
    if frames is not None and frames > video.total:
        logger.warning(
            "%s: asked for %s frames; the video has %s, all are used", video.name, f"{frames:,}", f"{video.total:,}"
        )
    return video


def _read(source: VideoSource, sampling: Sampling, source_fps: float | None, options: ReadOptions) -> Video:
    """Choose the reader by the kind of source."""
    if isinstance(source, np.ndarray) or is_tensor(source):
        return _read_array(source, sampling, source_fps, options)
    if not isinstance(source, (str, os.PathLike)):
        raise VideoError(
            f"a video must be a path or an array of frames [T,H,W,3], got {type(source).__name__}; "
            "stack a list of frames with np.stack"
        )
    path = Path(source)
    if path.is_dir():
        return _read_folder(path, sampling, source_fps, options)
    check_source(path, source_fps)
    try:
        from aviot.video.files import read_file  # the only module that needs PyAV
    except ModuleNotFoundError as error:
        raise VideoError(
            f"video files need PyAV, which is not installed ({error}); pip install 'aviot[video]'"
        ) from error
    return read_file(path, sampling, options)


def _read_array(source: Frames, sampling: Sampling, source_fps: float | None, options: ReadOptions) -> Video:
    """Sample uint8 RGB [T,H,W,3] as a video of constant rate `source_fps`."""
    _check_array(source)
    if source_fps is None:
        raise VideoError("an array has no frame rate of its own; give it with source_fps=")
    timeline = Timeline.constant(len(source), Fraction(source_fps))
    indices = sampling.indices(len(timeline), timeline.fps)
    # No limit of memory: the source is in memory already.
    buffer = FrameBuffer(len(indices), options.transform, max_bytes=None, progress=options.progress)
    for slot, index in enumerate(indices):
        frame = source[index]
        buffer.put(slot, frame if isinstance(frame, np.ndarray) else frame.detach().cpu().numpy())
    return buffer.video(indices, timeline, ARRAY_NAME)


def _check_array(source: Frames) -> None:
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


def _read_folder(folder: Path, sampling: Sampling, source_fps: float | None, options: ReadOptions) -> Video:
    """Sample the images of a folder, in natural order, as a video of constant rate.

    Without `source_fps` they are taken to be sampled already, at the requested rate: none is skipped unless there are
    too many.
    """
    deadline = options.limits.begin(folder)
    images = list_images(folder)
    timeline = Timeline.constant(len(images), Fraction(source_fps or sampling.fps))
    indices = sampling.indices(len(timeline), timeline.fps)
    buffer = FrameBuffer(len(indices), options.transform, progress=options.progress)
    for slot, index in enumerate(indices):
        deadline.check()
        buffer.put(slot, load_image(images[index]))
    return buffer.video(indices, timeline, folder.resolve().name)


def list_images(folder: Path) -> list[Path]:
    """Return the image files directly in a folder, without hidden ones, in natural order: img2 before img10."""
    return sorted(find_images(folder), key=_natural_key)


def _natural_key(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"([0-9]+)|([^0-9]+)", path.name.lower())
    return [(0, int(digits), "") if digits else (1, 0, text) for digits, text in parts], path.name


def load_image(path: Path) -> Picture:
    """Return an image as upright RGB [H,W,3]: EXIF orientation applied, alpha dropped, 16 bits reduced to 8."""
    try:
        with Image.open(path, formats=IMAGE_FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise VideoError(
                    f"{path} is a picture of {image.width}x{image.height}, more than the limit of {MAX_PIXELS:,} "
                    "pixels; scale it down first"
                )
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I"):
                upright = Image.fromarray((np.asarray(upright) >> 8).clip(0, 255).astype(np.uint8))
            return np.asarray(upright.convert("RGB"))
    except VideoError:
        raise
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        raise VideoError(f"{path} is not an image that can be read ({reason(error)})") from error
