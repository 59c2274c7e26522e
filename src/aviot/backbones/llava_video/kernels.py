"""Kernels of the connector: the projector's activation fused with its mean over a frame or with pooling."""

from functools import partial

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

CHANNELS, PATCHES = 128, 16  # in one tile


@triton.jit
def gelu(x):
    """Return x Phi(x) = max(x, 0) - t Phi(-t), t = |x|, within 2e-7: eight multiplications and one exponential.

    Phi(-t) = 2^q(t), q the polynomial of degree seven with the smallest error of t 2^q among those that start at -1 and
    whose leading coefficient is -1e-6: these decrease without bound, so that any t is in range, and a NaN stays one.
    """
    t = tl.abs(x)
    q = -1e-06 * t + 4.02828442e-05
    q = q * t - 7.81115535e-04
    q = q * t + 8.05730489e-03
    q = q * t - 5.33162418e-02
    q = q * t - 4.58879926e-01
    q = q * t - 1.15115289
    q = q * t - 1.0
    return tl.maximum(x, 0.0) - t * tl.exp2(q)


@partial(triton.jit, do_not_specialize=["patches"])
def _mean(hidden, means, patches, width, SB: tl.constexpr, DB: tl.constexpr):
    """Average gelu over the patches of one frame."""
    frame, d = tl.program_id(0).to(tl.int64), tl.program_id(1) * DB + tl.arange(0, DB)
    s = tl.arange(0, SB)
    total = tl.zeros((SB, DB), tl.float32)
    for first in tl.range(0, patches, SB, num_stages=4):
        inside = (first + s < patches)[:, None] & (d < width)[None, :]
        at = hidden + (frame * patches + first + s)[:, None] * width + d[None, :]
        total += gelu(tl.load(at, mask=inside, other=0.0).to(tl.float32))
    tl.store(means + frame * width + d, tl.sum(total, 0) / patches, mask=d < width)


@triton.jit
def _neighbours(index, count, size):
    """Return the two points between which `index` of `count` lies on an axis of `size`, and the second's weight."""
    place = tl.maximum((index + 0.5) * (size / count) - 0.5, 0.0)
    low = tl.minimum(tl.floor(place).to(tl.int32), size - 1)
    return low, tl.minimum(low + 1, size - 1), tl.minimum(tl.maximum(place - low, 0.0), 1.0)


@partial(triton.jit, do_not_specialize=["height", "width", "rows", "columns"])
def _pool(hidden, pooled, height, width, rows, columns, dim, CB: tl.constexpr, DB: tl.constexpr):
    """Interpolate gelu bilinearly, without corner alignment, for one output row, and store a zero after it."""
    frame, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c, d = tl.arange(0, CB), tl.program_id(2) * DB + tl.arange(0, DB)
    inside = (c < columns)[:, None] & (d < dim)[None, :]
    top, bottom, down = _neighbours(row, rows, height)
    left, right, across = _neighbours(c, columns, width)
    value = tl.zeros((CB, DB), tl.float32)
    for corner in tl.static_range(4):
        y = top if corner < 2 else bottom
        z = left if corner % 2 == 0 else right
        weight = (1.0 - down if corner < 2 else down) * (1.0 - across if corner % 2 == 0 else across)
        at = hidden + ((frame * height + y) * width + z)[:, None] * dim + d[None, :]
        value += weight[:, None] * gelu(tl.load(at, mask=inside, other=0.0).to(tl.float32))
    room = (c <= columns)[:, None] & (d < dim)[None, :]
    tl.store(pooled + ((frame * rows + row) * (columns + 1) + c)[:, None] * dim + d[None, :], value, mask=room)


def gelu_mean(hidden: Float[Tensor, "K S d"]) -> Float[Tensor, "K d"]:
    """Return the activation's mean over each frame, in the hidden layer's type."""
    frames, patches, width = hidden.shape
    means = hidden.new_empty((frames, width))
    grid = (frames, triton.cdiv(width, CHANNELS))
    _mean[grid](hidden, means, patches, width, SB=PATCHES, DB=CHANNELS)
    return means


def gelu_pool(
    hidden: Float[Tensor, "K S d"], grid: tuple[int, int], pooled: tuple[int, int]
) -> Float[Tensor, "K rows columns+1 d"]:
    """Return the activation interpolated to a smaller grid, rounded once, with a zero after each row."""
    frames, _, width = hidden.shape
    out = hidden.new_empty((frames, pooled[0], pooled[1] + 1, width))
    programs = (frames, pooled[0], triton.cdiv(width, CHANNELS))
    columns = triton.next_power_of_2(pooled[1] + 1)
    _pool[programs](hidden, out, *grid, *pooled, width, CB=columns, DB=CHANNELS)
    return out
