"""Tiny models of every family behind one interface, and tiny clips, shared by the tests of this folder."""

from functools import cache
from pathlib import Path

import numpy as np
import tiny_models as tiny

from aviot import VideoLM
from aviot.backbones import registry
from aviot.backbones.huggingface.processing import Processing

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
LLAVA_VIDEO = "llava-video"
QWEN2 = {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 12}  # of a frame, in pixels
QWEN3 = {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 64}  # of the whole video
SETTINGS = {
    "qwen2-vl": {"size": QWEN2},
    "qwen2.5-vl": {"size": QWEN2},
    "qwen3-vl": {"size": QWEN3},
    "qwen3-vl-moe": {"size": QWEN3},
    "qwen3.5": {"size": QWEN3},
    "llava-onevision": {"size": {"height": 42, "width": 42}},
    "internvl": {"size": {"height": 48, "width": 48}},
    "video-llama3": {"size": {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 60}},
    "smolvlm": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}},
}
FAMILIES = (*tiny.FAMILIES, LLAVA_VIDEO)


@cache
def lm_of(family: str) -> VideoLM:
    """Return a family's tiny model."""
    if family == LLAVA_VIDEO:
        return VideoLM.from_pretrained(GOLDEN, device="cpu")
    model, tokenizer = tiny.FAMILIES[family]()
    found = registry.wrap(model, tokenizer)
    processing = Processing(tokenizer, tokenizer.chat_template, {}, SETTINGS[family])
    return VideoLM(type(found)(model, processing))


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
