"""Kernel of the divergences' gradients, one region at a time.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel
from aviot.methods.aviot.kernels.device_functions import SMALLEST, neighbour


@grid_kernel
def divergence_backward(
    plans,
    gradient,
    grad_plans,
    rows,
    columns,
    regions,
    offset,
    edge_offset,
    edges,
    supports,
    pitch,
    longest,
    TB: tl.constexpr,
    NB: tl.constexpr,
):
    """Sum (log p - log of the mixture) / 2 over the edges of one region, for some supports; zero where p is."""
    cell, video, i = tl.program_id(0), tl.program_id(2).to(tl.int64), tl.arange(0, NB)
    j = tl.program_id(1) * TB + tl.arange(0, TB)
    used = (j < supports)[:, None] & (i < longest)[None, :]
    first = video * regions + offset
    at = (first + cell) * supports * pitch + j[:, None] * pitch + i[None, :]
    p = tl.load(plans + at, mask=used, other=0.0)
    total = tl.zeros((TB, NB), tl.float32)
    for side in tl.static_range(4):
        other, edge, there = neighbour(cell, rows, columns, side)
        change = tl.load(gradient + video * edges + edge_offset + tl.where(there, edge, 0))
        beside = (first + other) * supports * pitch + j[:, None] * pitch + i[None, :]
        here = (j < tl.where(there, supports, 0))[:, None] & (i < longest)[None, :]
        q = tl.load(plans + beside, mask=here, other=0.0)
        apart = tl.log(tl.maximum(p, SMALLEST)) - tl.log(tl.maximum(0.5 * (p + q), SMALLEST))
        total += tl.where(there, change, 0.0) * tl.where(p > 0, apart, 0.0)
    tl.store(grad_plans + at, total * (0.5 / supports), mask=used)
