"""Kernel and launch of the squared distances.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.ot.sinkhorn import kernel

TILE, CHANNELS = 32, 8  # points on either side, and channels of one step


@kernel
def distances_tile(a, b, out, n, k, dim, TB: tl.constexpr, DB: tl.constexpr):
    """Compute ||a_i - b_j||^2 for one tile of one problem."""
    problem = tl.program_id(0).to(tl.int64)
    i, j, d = tl.program_id(1) * TB + tl.arange(0, TB), tl.program_id(2) * TB + tl.arange(0, TB), tl.arange(0, DB)
    total = tl.zeros((TB, TB), out.dtype.element_ty)
    for channel in range(0, dim, DB):
        real = (channel + d < dim)[None, :]
        x = tl.load(
            a + (problem * n + i)[:, None] * dim + channel + d[None, :], mask=(i < n)[:, None] & real, other=0.0
        )
        z = tl.load(
            b + (problem * k + j)[:, None] * dim + channel + d[None, :], mask=(j < k)[:, None] & real, other=0.0
        )
        away = x[:, None, :] - z[None, :, :]
        total += tl.sum(away * away, 2)
    place = (problem * n + i)[:, None] * k + j[None, :]
    tl.store(out + place, total, mask=(i < n)[:, None] & (j < k)[None, :])


def squared_distances(a: Float[Tensor, "... N D"], b: Float[Tensor, "... k D"]) -> Float[Tensor, "... N k"]:
    """Return the squared distances of every problem's points; a and b have the same type and problem shape."""
    a, b = a.contiguous(), b.contiguous()
    (n, dim), k = a.shape[-2:], b.shape[-2]
    out = a.new_empty((*a.shape[:-1], k))
    problems = a.numel() // (n * dim)
    grid = (problems, triton.cdiv(n, TILE), triton.cdiv(k, TILE))
    distances_tile[grid](a, b, out, n, k, dim, TB=TILE, DB=CHANNELS)
    return out
