"""Kernel of the gradients of those sums."""

import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel
from aviot.methods.aviot.kernels.device_functions import SMALLEST, neighbour
from aviot.methods.aviot.kernels.gate_terms.forward import motion_likeness


@grid_kernel
def gate_sums_backward(
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
    """Compute the gradient of some gates of one patch."""
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
        alike = motion_likeness(change, video, patch, other, patches, there, SCALE)
        theirs = tl.load(gates + (video * patches + other) * count + e, mask=e < tl.where(there, count, 0), other=0.0)
        step += alike * ((mine > theirs).to(tl.float32) - (mine < theirs).to(tl.float32))
    share = tl.load(upper + 2 + e % LEVELS, mask=inside, other=0.0)
    slope = tl.log(tl.maximum(mine, SMALLEST)) + tl.where(mine >= SMALLEST, 1.0, 0.0)
    mean = (share + tl.load(upper + LEVELS + 2) * slope) * LEVELS / (count * patches)
    tl.store(grad_gates + at, tl.load(upper) * step / count + mean, mask=inside)
