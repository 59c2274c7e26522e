"""Reading a video file: the user's, or one that is made up where PyAV can write one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np

from aviot.bench.options import CPU
from aviot.bench.result import Decoding
from aviot.bench.timing import NotMeasured, measure
from aviot.video import read_video

CODEC: Literal["libx264"] = "libx264"
RATE = 30
WIDTH, HEIGHT = 320, 240
SPACING = 4  # frames of the made-up clip for each that is sampled
WITHOUT_PYAV = "PyAV is not installed"


def measure_decoding(video: Path | None, frames: tuple[int, ...], *, warmup: int, repeats: int) -> tuple[Decoding, ...]:
    """Time reading each frame count out of the video, or say why not; a video that is given must be readable."""
    if video is not None:
        return tuple(_decode(video, str(video), count, warmup, repeats) for count in frames)
    with _clip(SPACING * max(frames)) as made:
        if isinstance(made, NotMeasured):
            return tuple(Decoding(frames=count, source="none", part=made) for count in frames)
        told = f"a made-up clip of {WIDTH}x{HEIGHT}, {SPACING * max(frames)} frames"
        return tuple(_decode(made, told, count, warmup, repeats) for count in frames)


def _decode(path: Path, source: str, frames: int, warmup: int, repeats: int) -> Decoding:
    there = len(read_video(path, frames=frames))
    if there < frames:
        return Decoding(frames=frames, source=source, part=NotMeasured(f"the video has {there} frames"))
    part = measure(lambda: read_video(path, frames=frames), CPU, warmup=warmup, repeats=repeats)
    return Decoding(frames=frames, source=source, part=part)


@contextmanager
def _clip(length: int) -> Iterator[Path | NotMeasured]:
    """A file of moving noise for as long as it is needed, or why there is none."""
    try:
        import av
    except ImportError:
        yield NotMeasured(WITHOUT_PYAV)
        return
    if CODEC not in av.codecs_available:
        yield NotMeasured(f"this PyAV cannot write {CODEC}")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        _write(path, length)
        yield path


def _write(path: Path, length: int) -> None:
    import av

    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
    picture = noise.repeat(8, axis=0).repeat(8, axis=1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(CODEC, rate=RATE, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(length):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 2 * number, axis=1), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
