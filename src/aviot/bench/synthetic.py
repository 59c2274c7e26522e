"""Synthetic inputs of every method: tokens of a made-up video, and every extra that a method can need."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aviot.methods.baselines import cell_weights
from aviot.methods.features import VideoFeatures

SCENE = 16  # frames
CHANGE = 0.3  # of a token from frame to frame, as a share of its scene's standard deviation
HEAD = 64  # channels of the encoder's keys
QUESTION = 16  # tokens


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a video's tokens: `grid` as the decoder reads them, `unpooled` before pooling."""

    frames: int
    grid: tuple[int, int]
    unpooled: tuple[int, int]
    dim: int

    def __str__(self) -> str:
        rows, columns = self.grid
        return f"{self.frames} x {rows * columns} x {self.dim}"


def synthetic_video(
    shape: Shape, device: torch.device, dtype: torch.dtype, seed: int, *, before_pooling: bool = False
) -> VideoFeatures:
    """Return tokens of scenes that change a little from frame to frame, with every extra beside them."""
    grid = shape.unpooled if before_pooling else shape.grid
    frames, patches = shape.frames, grid[0] * grid[1]
    g = torch.Generator(device).manual_seed(seed)

    def drawn(*size: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(size, generator=g, device=device, dtype=dtype)

    scene = torch.arange(frames, device=device) // SCENE
    features = drawn(frames, patches, shape.dim).mul_(CHANGE)
    features += drawn(-(-frames // SCENE), patches, shape.dim)[scene]
    attention = {
        name: drawn(frames, patches, dtype=torch.float32).softmax(1)
        for name in ("attention", "attention_shallow", "attention_deep")
    }
    extras: dict[str, Tensor] = {
        **attention,
        "attention_keys": drawn(frames, patches, HEAD),
        "question_tokens": drawn(QUESTION, shape.dim),
        "frame_means": features.mean(1),
        "before_positions": features,
    }
    if before_pooling:
        extras["pooling"] = cell_weights(grid, shape.grid).unflatten(0, shape.grid).to(device)
    per_frame = shape.grid[0] * shape.grid[1]
    return VideoFeatures(features, grid, tuple(0.5 * t for t in range(frames)), per_frame, extras)


def synthetic_question(shape: Shape, device: torch.device, dtype: torch.dtype, seed: int) -> Tensor:
    """Return a question's mean input embedding."""
    return torch.randn(shape.dim, generator=torch.Generator(device).manual_seed(seed), device=device, dtype=dtype)
