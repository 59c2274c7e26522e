"""Kernel of the sums that the gate terms need, one program per patch."""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel
from aviot.methods.aviot.kernels.device_functions import neighbour, plogp


@triton.jit
def motion_likeness(change, video, patch, other, patches, there, SCALE):
    """Return exp(-|difference of motion| / scale) of two patches."""
    a = tl.load(change + video * patches + patch)
    b = tl.load(change + video * patches + tl.where(there, other, 0))
    return tl.where(there, tl.exp(-tl.abs(a - b) / SCALE), 0.0)


@grid_kernel
def gate_sums(
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
    """Sum one patch's weighted steps to the patches below and right, their weights, its shares, and p log p."""
    patch, video = tl.program_id(0), tl.program_id(1).to(tl.int64)
    patches = rows * columns
    own = gates + (video * patches + patch) * count
    out = sums + (video * patches + patch) * (LEVELS + 3)
    step, weights = tl.zeros((BLOCK,), tl.float32), 0.0
    for way in tl.static_range(0, 4, 2):
        other, _, there = neighbour(patch, rows, columns, way)
        alike = motion_likeness(change, video, patch, other, patches, there, SCALE)
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
