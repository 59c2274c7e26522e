"""A model to measure, loaded or with random weights, and random videos for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from aviot.backbones.base import Backbone
from aviot.bench.sizes import Size
from aviot.session import VideoLM
from aviot.video import Video

if TYPE_CHECKING:
    from aviot.models import AviotForConditionalGeneration

SIDE = 384  # pixels of random frames, where the backbone has no size of its own


def random_model(size: Size, device: torch.device, dtype: torch.dtype, seed: int) -> "AviotForConditionalGeneration":
    """Return a model of this shape with random weights, made on the device itself."""
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


def load_model(folder: Path, device: torch.device, dtype: torch.dtype | None) -> VideoLM:
    """Return a checkpoint on the device, in its own type unless another is asked for."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    lm = VideoLM.from_pretrained(folder, device=str(device))
    if dtype is not None:
        lm.backbone.model.to(dtype)
    return lm


def random_videos(backbone: Backbone, batch: int, frames: int, seed: int) -> list[Video]:
    """Return videos of random pixels, two frames per second."""
    side = backbone.image_size or SIDE
    draw = np.random.default_rng(seed)
    return [
        Video(
            frames=draw.integers(0, 256, (frames, side, side, 3), dtype=np.uint8),
            times=tuple(number / 2 for number in range(frames)),
            indices=tuple(range(frames)),
            duration=frames / 2,
            fps=2.0,
            total=frames,
            name=f"random {number}",
        )
        for number in range(batch)
    ]


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
