"""Models and videos to measure with: loaded or random, and the time to decode a video file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from aviot.backbones.base import Backbone
from aviot.backbones.loading import without_progress_bars
from aviot.bench.result import Decoding
from aviot.bench.sizes import SIZES, Size
from aviot.bench.timing import CPU, NotMeasured, measure
from aviot.session import VideoLM
from aviot.video import Video, read_video

if TYPE_CHECKING:
    from aviot.models import AviotForConditionalGeneration

SOURCE = (720, 1280)  # height and width of the video whose frames random ones stand for, as the backbone scales them
CODEC: Literal["libx264"] = "libx264"
RATE = 30
WIDTH, HEIGHT = 320, 240
SPACING = 4  # frames of the generated clip per sampled frame
WITHOUT_PYAV = "PyAV is not installed"


def random_model(size: Size, device: torch.device, dtype: torch.dtype, seed: int) -> "AviotForConditionalGeneration":
    """Return a model of this shape with random weights, initialised on the device itself."""
    from aviot.models import AviotConfig, AviotForConditionalGeneration

    config = AviotConfig(
        vision_config=size.vision_config(),
        text_config=size.text_config(),
        compressor_config=size.compressor,
    )
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), _default_dtype(dtype), device:
        torch.manual_seed(seed)
        return AviotForConditionalGeneration(config).eval()


def random_lm(name: str, device: torch.device, dtype: torch.dtype, seed: int) -> VideoLM:
    """Return a model with random weights by its size's name, LLaVA-Video's layout or another family's."""
    if name in SIZES:
        return VideoLM(random_model(SIZES[name], device, dtype, seed))
    from aviot.bench.random_families import random_family

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), _default_dtype(dtype):
        torch.manual_seed(seed)
        return VideoLM(random_family(name, device))


def load_model(folder: Path, device: torch.device, dtype: torch.dtype | None, base: Path | None = None) -> VideoLM:
    """Return a checkpoint, or an adapter on its base, on the device; a dtype of None stands for its own."""
    with without_progress_bars():
        lm = VideoLM.from_pretrained(folder, device=str(device), base=base)
    if dtype is not None:
        lm.backbone.model.to(dtype)
    return lm


def random_videos(backbone: Backbone, batch: int, frames: int, seed: int) -> list[Video]:
    """Return videos of random pixels with two frames per second."""
    height, width = backbone.frame_size(frames, SOURCE)
    draw = np.random.default_rng(seed)
    return [
        Video(
            frames=draw.integers(0, 256, (frames, height, width, 3), dtype=np.uint8),
            times=tuple(number / 2 for number in range(frames)),
            indices=tuple(range(frames)),
            duration=frames / 2,
            fps=2.0,
            total=frames,
            name=f"random {number}",
        )
        for number in range(batch)
    ]


def measure_decoding(video: Path | None, frames: tuple[int, ...], *, warmup: int, repeats: int) -> tuple[Decoding, ...]:
    """Time reading each number of frames from the video; without one, from a generated clip if PyAV can write one."""
    if video is not None:
        return tuple(_decode(video, str(video), count, warmup, repeats) for count in frames)
    with _clip(SPACING * max(frames)) as made:
        if isinstance(made, NotMeasured):
            return tuple(Decoding(frames=count, source="none", part=made) for count in frames)
        source = f"a generated clip of {WIDTH}x{HEIGHT}, {SPACING * max(frames)} frames"
        return tuple(_decode(made, source, count, warmup, repeats) for count in frames)


def _decode(path: Path, source: str, frames: int, warmup: int, repeats: int) -> Decoding:
    available = len(read_video(path, frames=frames))
    if available < frames:
        return Decoding(frames=frames, source=source, part=NotMeasured(f"the video has {available} frames"))
    part = measure(lambda: read_video(path, frames=frames), CPU, warmup=warmup, repeats=repeats)
    return Decoding(frames=frames, source=source, part=part)


@contextmanager
def _clip(length: int) -> Iterator[Path | NotMeasured]:
    """Yield a temporary file of moving noise, or the reason why there is none."""
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


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
