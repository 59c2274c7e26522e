"""A small playable copy of a video for a page: H.264 in MP4, without sound."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from PIL import Image

MOST_BYTES = 1_100_000  # of the copy, before base64
SIDE = 360  # pixels of its longer side
SMALLER_SIDE = 240
FPS = 12
LONGEST = 300.0  # seconds of a video that is copied whole; of longer ones the sampled frames are shown
LARGEST_WORK = 2.5e9  # pixels that are decoded for a copy: about 90 s of 720p at 30 frames per second
TICKS = 1000  # per second
QUALITY = "30"  # x264's constant rate factor


@dataclass(frozen=True)
class Clip:
    """A playable copy; `kind` says whether it has the video's own motion or only the frames that were sampled."""

    data: bytes
    kind: Literal["video", "frames"]


def clip_of_file(source: Any) -> Clip | None:
    """Return a copy of a video file; None for other sources, for a file that is too long, and without PyAV."""
    if not isinstance(source, str | Path) or not Path(source).is_file():
        return None
    try:
        import av
    except ImportError:
        return None
    try:
        with av.open(str(source)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            seconds = float(container.duration or 0) / av.time_base
            rate = float(stream.average_rate or FPS)
            if not 0 < seconds <= LONGEST or seconds * rate * stream.width * stream.height > LARGEST_WORK:
                return None
            data = _encoded(_decoded(container, stream), min(rate, FPS), seconds, SIDE)
    except (av.FFmpegError, IndexError, ValueError):  # a page can do without: its pictures stand in for the copy
        return None
    return Clip(data, "video") if data is not None else None


def clip_of_pictures(images: Sequence[Image.Image], times: Sequence[float], duration: float) -> Clip | None:
    """Return the sampled frames as a video, each shown until the next one's time; None without PyAV."""
    try:
        import av  # noqa: F401
    except ImportError:
        return None
    gap = duration / len(images)
    last = max(times[-1] + min(gap, 1.0), duration)

    def frames() -> Iterator[tuple[float, Image.Image]]:
        yield from zip(times, images, strict=True)
        yield last - 0.001, images[-1]  # the last frame stays until the video ends

    for side in (SIDE, SMALLER_SIDE):
        data = _encoded(frames(), FPS, max(last, 1.0), side)
        if data is not None:
            return Clip(data, "frames")
    return None


def _decoded(container: Any, stream: Any) -> Iterator[tuple[float, Image.Image]]:
    """Yield time and picture of frames, at most `FPS` per second."""
    first, due = None, 0.0
    for frame in container.decode(stream):
        if frame.time is None:
            continue
        first = frame.time if first is None else first
        time = frame.time - first
        if time + 1e-3 < due:
            continue
        due = max(due + 1 / FPS, time)
        scale = min(1.0, SIDE / max(frame.width, frame.height))
        small = frame.reformat(width=max(2, round(frame.width * scale)), height=max(2, round(frame.height * scale)))
        yield time, small.to_image()


def _encoded(frames: Iterator[tuple[float, Image.Image]], rate: float, seconds: float, side: int) -> bytes | None:
    """Return frames as an MP4 file; None if it is larger than a page may hold, or has no frames."""
    import av

    file, stream, latest = io.BytesIO(), None, -1
    bits = 8 * 0.9 * MOST_BYTES / seconds
    with av.open(file, "w", format="mp4") as container:
        for time, image in frames:
            if stream is None:
                width, height = even_size(image.size, side)
                options = {"crf": QUALITY, "preset": "fast", "maxrate": f"{bits:.0f}", "bufsize": f"{2 * bits:.0f}"}
                stream = container.add_stream("libx264", rate=max(1, round(rate)), options=options)
                stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                stream.codec_context.time_base = Fraction(1, TICKS)
                stream.codec_context.gop_size = 24  # so that a browser can jump to any moment at once
            picture = av.VideoFrame.from_image(image.resize((width, height), Image.Resampling.LANCZOS))
            latest = max(latest + 1, round(time * TICKS))
            picture.pts, picture.time_base = latest, Fraction(1, TICKS)
            container.mux(stream.encode(picture))
        if stream is None:
            return None
        container.mux(stream.encode(None))
    data = file.getvalue()
    return data if len(data) <= MOST_BYTES else None


def even_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height with a longer side of at most `side`, both even, as the codec needs."""
    scale = min(1.0, side / max(size))
    width, height = (max(2, 2 * round(length * scale / 2)) for length in size)
    return width, height
