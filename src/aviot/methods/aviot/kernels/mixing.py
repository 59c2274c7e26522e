"""The fused output: every support at every position as a mixture of its segment's sources."""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.kernels.places import place_in_video
from aviot.methods.aviot.layout import Layout
from aviot.ot.sinkhorn import block, kernel

CHANNELS = 128  # of one tile
FEWER = 4  # times fewer in float32 beyond 64 sources, or the tiles would not fit in a multiprocessor's memory


@triton.jit
def product(weights, values, HALVES: tl.constexpr):
    """weights @ values to float32 precision: features of 16 bits exactly, times weights as two such numbers."""
    if HALVES:
        high = weights.to(values.dtype)
        low = (weights - high.to(tl.float32)).to(values.dtype)
        mixed = tl.dot(low, values, tl.dot(high, values))
    else:
        mixed = tl.dot(weights, values, input_precision="tf32x3")
    return mixed


@triton.jit
def mixture_of(
    rows,
    gates,
    region_of_patch,
    video,
    patch,
    first,
    n,
    k,
    patches,
    regions,
    supports,
    pitch,
    LEVELS: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """sum over granularities of gamma * A of one segment's supports at one patch."""
    i, j = tl.arange(0, NB), tl.arange(0, KB)
    used = (j < k)[:, None] & (i < n)[None, :]
    mixture = tl.zeros((KB, NB), tl.float32)
    for branch in tl.static_range(LEVELS):
        region = video * regions + tl.load(region_of_patch + branch * patches + patch)
        at = (region * supports + first + j)[:, None] * pitch + i[None, :]
        position = ((video * patches + patch) * supports + first + j) * LEVELS + branch
        share = tl.load(gates + position, mask=j < k, other=0.0)
        mixture += share[:, None] * tl.load(rows + at, mask=used, other=0.0)
    return mixture


@kernel
def _mix(
    x,
    rows,
    gates,
    region_of_patch,
    budgets,
    out,
    frames,
    patches,
    dim,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    LEVELS: tl.constexpr,
    HALVES: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
    DB: tl.constexpr,
):
    """One segment at one patch."""
    patch, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(1).to(tl.int64)
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    i, j, d = tl.arange(0, NB), tl.arange(0, KB), tl.arange(0, DB)
    source = ((video * frames + start + i) * patches + patch)[:, None] * dim
    if k == n:  # every support is its source: copied, since a product of split factors can miss the last bit
        kept = ((video * supports + first + i) * patches + patch)[:, None] * dim
        for channel in range(0, dim, DB):
            inside = (i < n)[:, None] & (channel + d < dim)[None, :]
            tile = tl.load(x + source + channel + d[None, :], mask=inside, other=0.0)
            tl.store(out + kept + channel + d[None, :], tile, mask=inside)
        return
    mixture = mixture_of(
        rows, gates, region_of_patch, video, patch, first, n, k, patches, regions, supports, pitch, LEVELS, KB, NB
    )
    target = ((video * supports + first + j) * patches + patch)[:, None] * dim
    for channel in range(0, dim, DB):
        real = channel + d < dim
        tile = tl.load(x + source + channel + d[None, :], mask=(i < n)[:, None] & real[None, :], other=0.0)
        mixed = product(mixture, tile, HALVES)
        tl.store(out + target + channel + d[None, :], mixed, mask=(j < k)[:, None] & real[None, :])


def geometry(x: Tensor, layout: Layout, channels: int) -> tuple[tuple[int, int], dict[str, Any], tuple[int, int, int]]:
    """Programs, tiles, and what finds a segment."""
    segments = layout.segments
    fewer = x.dtype == torch.float32 and segments.longest > 64
    sizes = {"KB": block(layout.slots), "NB": block(segments.longest)}
    how = {
        "HALVES": x.dtype != torch.float32,
        "MB": block(segments.count),
        "DB": channels // FEWER if fewer else channels,
        "num_warps": 4,
    }
    grid = (x.shape[2] * segments.count, x.shape[0])
    return grid, how | sizes, (segments.longest, segments.full, segments.count)


def mix_plans(
    x: Float[Tensor, "B N S D"],
    rows: Float[Tensor, "B regions K n"],
    gates: Float[Tensor, "B S K L"],
    region_of_patch: Int[Tensor, "L S"],
    layout: Layout,
) -> Float[Tensor, "B K S D"]:
    """sum_i (sum_l gamma A) X: plans and features in, fused features out."""
    batch, frames, patches, dim = x.shape
    out = x.new_empty((batch, layout.supports, patches, dim))
    grid, how, segments = geometry(x, layout, CHANNELS)
    shape = (frames, patches, dim, rows.shape[1], layout.supports, rows.stride(-2), *segments)
    _mix[grid](x, rows, gates, region_of_patch, layout.budgets, out, *shape, LEVELS=gates.shape[-1], **how)
    return out
