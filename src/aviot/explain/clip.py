"""A small playable copy of a video for a page: H.264 in MP4, without sound."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from PIL import Image

MOST_BYTES = 1_100_000  # of the copy, before base64
SIDES = (360, 240)  # pixels of its longer side; the second one if the first takes too many bytes
TICKS = 1000  # per second
QUALITY = "30"  # x264's constant rate factor
KEYFRAMES = "24"  # frames between them, so that a browser can jump to any moment at once


@dataclass(frozen=True)
class Clip:
    """A playable copy; `kind` says whether it has the video's own motion or only the frames that were sampled."""

    data: bytes
    kind: Literal["video", "frames"]


def clip_of(
    images: Sequence[Image.Image], times: Sequence[float], duration: float, kind: Literal["video", "frames"] = "frames"
) -> Clip | None:
    """Return frames as a video, each shown until the next one's time; None without PyAV or if it is too large."""
    try:
        import av  # noqa: F401
    except ImportError:
        return None
    for side in SIDES:
        data = _encoded(images, times, max(duration, times[-1] + 0.04), side)
        if len(data) <= MOST_BYTES:
            return Clip(data, kind)
    return None


def _encoded(images: Sequence[Image.Image], times: Sequence[float], duration: float, side: int) -> bytes:
    import av

    file, latest = io.BytesIO(), -1
    bits = 8 * 0.9 * MOST_BYTES / max(duration, 1.0)
    width, height = even_size(images[0].size, side)
    ends = [*zip(times, images, strict=True), (duration - 0.001, images[-1])]  # the last frame stays until the end
    with av.open(file, "w", format="mp4") as container:
        options = {"crf": QUALITY, "preset": "fast", "g": KEYFRAMES, "maxrate": f"{bits:.0f}"}
        options["bufsize"] = f"{2 * bits:.0f}"
        stream = container.add_stream("libx264", rate=max(1, round(len(images) / duration)), options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS)
        for time, image in ends:
            picture = av.VideoFrame.from_image(image.resize((width, height), Image.Resampling.LANCZOS))
            latest = max(latest + 1, round(time * TICKS))
            picture.pts, picture.time_base = latest, Fraction(1, TICKS)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return file.getvalue()


def even_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height with a longer side of at most `side`, both even, as the codec needs."""
    scale = min(1.0, side / max(size))
    width, height = (max(2, 2 * round(length * scale / 2)) for length in size)
    return width, height
