"""Tiny models of every family behind one interface, and tiny clips, shared by the tests of this folder."""

from copy import copy
from functools import cache
from pathlib import Path

import numpy as np
import tiny_models as tiny

from aviot import CompressorConfig, VideoLM
from aviot.backbones.huggingface.adapters import new_parts

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
LLAVA_VIDEO = "llava-video"
FAMILIES = (*tiny.FAMILIES, LLAVA_VIDEO)


@cache
def lm_of(family: str) -> VideoLM:
    """Return a family's tiny model."""
    if family == LLAVA_VIDEO:
        return VideoLM.from_pretrained(GOLDEN, device="cpu")
    return VideoLM(tiny.backbone(family))


def with_parts(backbone):
    """Return a copy of a backbone that has AVIOT's parts, as if it had been trained with them."""
    other, parts = copy(backbone), new_parts(CompressorConfig(dim=backbone.width))
    other.install({name: part.eval().requires_grad_(False) for name, part in parts.items()})
    return other


def clip(frames: int, size: tuple[int, int] = (64, 98), seed: int = 0) -> np.ndarray:
    """Return frames of coarse random colours with noise, uint8 [T,H,W,3]."""
    random = np.random.RandomState(seed)
    coarse = random.randint(0, 256, (frames, 6, 9, 3)).astype(np.uint8)
    rows, columns = (np.arange(side) * cells // side for side, cells in zip(size, (6, 9), strict=True))
    noise = random.randint(0, 20, (frames, *size, 3))
    return np.clip(coarse[:, rows][:, :, columns].astype(int) + noise, 0, 255).astype(np.uint8)


@cache
def session_of(family: str, frames: int = 6):
    """Return a session with a tiny clip."""
    return lm_of(family).open(clip(frames), source_fps=2.0, fps=2.0)
