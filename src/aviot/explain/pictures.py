"""Videos read with a picture of every frame for people, beside the squares that the encoder takes."""

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aviot.backbones.base import Backbone
from aviot.engine.base import Report
from aviot.explain.clip import Clip, clip_of
from aviot.methods.base import TIME_DIGITS
from aviot.session import VideoLM, VideoSession
from aviot.video import Scaling, Video, VideoError, read_video
from aviot.video.frames import SIZE_BYTES

SMALLEST_SIDE = 72
LARGEST_SIDE = 480  # pixels of a picture's longer side
PIXELS = 224 * 216 * 216  # of all pictures of a page: 216 per side for the longest videos
JPEG_BYTES = 1_500_000  # at most, of all pictures of a page, before base64
COPIED_SECONDS, COPIED_PIXELS = 300.0, 2.5e9  # of the longest video of which a playable copy is made
COPIED_FPS, COPIED_FRAMES, COPIED_SIDE = 12.0, 360, 320
QUALITIES = (80, 65, 50, 35, 20)


@dataclass(frozen=True)
class Pictures:
    """One picture per frame, with the frame's aspect ratio."""

    images: tuple[Image.Image, ...]
    size: tuple[int, int]  # width and height of the video's frames; of the first if they differ
    clip: Clip | None = None  # a playable copy of the video, if one was made from its file


def open_with_pictures(
    lm: VideoLM, source: Any, *, report: Report = lambda _: None, **how: Any
) -> tuple[VideoSession, Pictures]:
    """Open a video as `VideoLM.open` does, and return pictures of its frames too; the video is decoded once."""
    report("decode")
    video, pictures = read_with_pictures(lm.backbone, source, **how)
    clip = playable_copy(source, video, pictures, how.get("reader", read_video))
    return lm.open(video, report=report), replace(pictures, clip=clip)


def playable_copy(source: Any, video: Video, pictures: Pictures, reader: Callable[..., Video]) -> Clip | None:
    """Return a playable copy of a video file with more frames than were sampled; None for other sources.

    The file is read once more, by the same reader, unless it is too long for that or all its frames were sampled.
    """
    if len(video) >= video.total:
        return clip_of(pictures.images, video.times, video.duration, "video")
    work = video.total * pictures.size[0] * pictures.size[1]
    if not isinstance(source, str | Path) or not Path(source).is_file() or video.duration > COPIED_SECONDS:
        return None
    if work > COPIED_PIXELS:
        return None
    try:
        more = reader(source, fps=COPIED_FPS, max_frames=COPIED_FRAMES, transform=Scaling(1, COPIED_SIDE))
        _, frames = split_thumbnails(more, 1)
    except (VideoError, ValueError):  # a page can do without: the sampled frames stand in for the copy
        return None
    return clip_of(frames.images, more.times, more.duration, "video")


def read_with_pictures(backbone: Backbone, source: Any, **how: Any) -> tuple[Video, Pictures]:
    """Read a video as the backbone does, and return pictures of its frames too.

    If the backbone scales frames to squares, thumbnails are made beside them; else the pictures are its own frames.
    """
    side = backbone.image_size
    if side is None:
        video = backbone.read(source, **how)
        return video, pictures_of(video)
    return split_thumbnails(backbone.read(source, transform=backbone.with_thumbnails(LARGEST_SIDE), **how), side)


def split_thumbnails(video: Video, image_size: int) -> tuple[Video, Pictures]:
    """Split a video of squares with thumbnails into the encoder's squares and the pictures."""
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


def by_moment(pictures: Pictures, video: Video, times: Sequence[float]) -> Pictures:
    """Return one picture per time of the encoder, that of the nearest frame; an encoder may merge frames."""
    if len(times) == len(pictures.images):
        return pictures
    near = [
        min(range(len(video)), key=lambda frame: (round(abs(video.times[frame] - time), TIME_DIGITS), frame))
        for time in times
    ]
    return replace(pictures, images=tuple(pictures.images[frame] for frame in near))


def as_jpegs(images: Sequence[Image.Image], most_bytes: int | None = None) -> list[str]:
    """Return every picture as a JPEG in base64, smaller and coarser the more there are, to fit into a page."""
    if not images:
        return []
    side = min(LARGEST_SIDE, math.isqrt(PIXELS // len(images)))
    for quality in QUALITIES:
        files = [_jpeg(image, side, quality) for image in images]
        if sum(map(len, files)) <= (JPEG_BYTES if most_bytes is None else most_bytes):
            break
        side = max(SMALLEST_SIDE, side * 7 // 8)
    return [base64.b64encode(file).decode("ascii") for file in files]


def _jpeg(image: Image.Image, side: int, quality: int) -> bytes:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()
