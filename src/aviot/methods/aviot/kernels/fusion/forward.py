"""Kernel that mixes one segment's sources at one patch into its supports.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import segment_bounds
from aviot.ot.sinkhorn import kernel


@triton.jit
def split_dot(weights, values, HALVES: tl.constexpr):
    """Return weights @ values in float32 precision: exact features of 16 bits times weights as two such numbers."""
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
    """Return the sum over granularities of gamma * A for one segment's supports at one patch."""
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
def mix_segment(
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
    """Mix one segment's sources at one patch."""
    patch, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(1).to(tl.int64)
    start, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    i, j, d = tl.arange(0, NB), tl.arange(0, KB), tl.arange(0, DB)
    source = ((video * frames + start + i) * patches + patch)[:, None] * dim
    if k == n:  # every support is its source: copied, since a product of split factors can miss the last bit
        copied = ((video * supports + first + i) * patches + patch)[:, None] * dim
        for channel in range(0, dim, DB):
            inside = (i < n)[:, None] & (channel + d < dim)[None, :]
            tile = tl.load(x + source + channel + d[None, :], mask=inside, other=0.0)
            tl.store(out + copied + channel + d[None, :], tile, mask=inside)
        return
    mixture = mixture_of(
        rows, gates, region_of_patch, video, patch, first, n, k, patches, regions, supports, pitch, LEVELS, KB, NB
    )
    target = ((video * supports + first + j) * patches + patch)[:, None] * dim
    for channel in range(0, dim, DB):
        real = channel + d < dim
        tile = tl.load(x + source + channel + d[None, :], mask=(i < n)[:, None] & real[None, :], other=0.0)
        mixed = split_dot(mixture, tile, HALVES)
        tl.store(out + target + channel + d[None, :], mixed, mask=(j < k)[:, None] & real[None, :])
