"""What the objective needs of the gates, one pass over them, and the reverse pass."""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.divergence import SMALLEST, plogp
from aviot.methods.aviot.kernels.lattice import neighbour
from aviot.methods.aviot.kernels.means import cells

BLOCK = 512  # gates of one step: supports times granularities of one patch


@triton.jit
def _alike(change, video, patch, other, patches, there, SCALE):
    """exp(-|difference of motion| / scale) of two patches."""
    a = tl.load(change + video * patches + patch)
    b = tl.load(change + video * patches + tl.where(there, other, 0))
    return tl.where(there, tl.exp(-tl.abs(a - b) / SCALE), 0.0)


@cells
def _sums(
    gates,
    change,
    sums,
    rows,
    columns,
    count,
    SCALE: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One patch's weighted step to the patches below and right of it, their weights, shares, and sum of p log p."""
    patch, video = tl.program_id(0), tl.program_id(1).to(tl.int64)
    patches = rows * columns
    own = gates + (video * patches + patch) * count
    out = sums + (video * patches + patch) * (LEVELS + 3)
    step, weights = tl.zeros((BLOCK,), tl.float32), 0.0
    for way in tl.static_range(0, 4, 2):
        other, _, there = neighbour(patch, rows, columns, way)
        alike = _alike(change, video, patch, other, patches, there, SCALE)
        weights += alike
        for first in range(0, count, BLOCK):
            e = first + tl.arange(0, BLOCK)
            mine = tl.load(own + e, mask=e < count, other=0.0)
            theirs = tl.load(
                gates + (video * patches + other) * count + e, mask=e < tl.where(there, count, 0), other=0.0
            )
            step += alike * tl.abs(mine - theirs)
    tl.store(out, tl.sum(step, 0) / count)
    tl.store(out + 1, weights)
    entropy = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, count, BLOCK):
        e = first + tl.arange(0, BLOCK)
        entropy += plogp(tl.load(own + e, mask=e < count, other=0.0))
    tl.store(out + LEVELS + 2, tl.sum(entropy, 0) * LEVELS / (count * patches))
    for level in tl.static_range(LEVELS):
        share = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, count, BLOCK):
            e = first + tl.arange(0, BLOCK)
            share += tl.load(own + e, mask=(e < count) & (e % LEVELS == level), other=0.0)
        tl.store(out + 2 + level, tl.sum(share, 0) * LEVELS / (count * patches))


@cells
def _sums_backward(
    gates,
    change,
    gradient,
    grad_gates,
    rows,
    columns,
    count,
    SCALE: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some gates of one patch."""
    patch, video = tl.program_id(0), tl.program_id(2).to(tl.int64)
    patches = rows * columns
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = e < count
    at = (video * patches + patch) * count + e
    upper = gradient + video * (LEVELS + 3)
    mine = tl.load(gates + at, mask=inside, other=1.0)
    step = tl.zeros((BLOCK,), tl.float32)
    for side in tl.static_range(4):
        other, _, there = neighbour(patch, rows, columns, side)
        alike = _alike(change, video, patch, other, patches, there, SCALE)
        theirs = tl.load(gates + (video * patches + other) * count + e, mask=e < tl.where(there, count, 0), other=0.0)
        step += alike * ((mine > theirs).to(tl.float32) - (mine < theirs).to(tl.float32))
    share = tl.load(upper + 2 + e % LEVELS, mask=inside, other=0.0)
    slope = tl.log(tl.maximum(mine, SMALLEST)) + tl.where(mine >= SMALLEST, 1.0, 0.0)
    mean = (share + tl.load(upper + LEVELS + 2) * slope) * LEVELS / (count * patches)
    tl.store(grad_gates + at, tl.load(upper) * step / count + mean, mask=inside)


class GateMeans(torch.autograd.Function):
    """[B,L+3]: the gates' variation before it is divided by its weights, those, each mean share, the mean of
    sum_l gamma log gamma. `change` is the patches' motion, without gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Float[Tensor, "B S K L"],
        change: Float[Tensor, "B S"],
        grid: tuple[int, int],
        scale: float,
    ) -> Float[Tensor, "B L+3"]:
        """One program a patch."""
        gates = gates.contiguous()
        change = change.to(gates.dtype)
        ctx.save_for_backward(gates, change)
        batch, patches, supports, levels = gates.shape
        ctx.how = {"SCALE": scale, "LEVELS": levels, "BLOCK": BLOCK}
        ctx.place = (*grid, supports * levels)
        sums = gates.new_empty((batch, patches, levels + 3))
        _sums[(patches, batch)](gates, change, sums, *ctx.place, **ctx.how)
        return sums.sum(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """One program some gates of a patch."""
        gates, change = ctx.saved_tensors
        grad_gates = torch.empty_like(gates)
        batch, patches = gates.shape[:2]
        blocks = (patches, triton.cdiv(math.prod(gates.shape[2:]), BLOCK), batch)
        _sums_backward[blocks](gates, change, gradients[0].contiguous(), grad_gates, *ctx.place, **ctx.how)
        return grad_gates, None, None, None
