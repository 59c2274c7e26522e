"""Kernels of one edge between two regions: how alike they look, and how far their plans are apart.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel
from aviot.methods.aviot.kernels.device_functions import SMALLEST_NORM, edge_ends, plogp


@grid_kernel
def edge_likeness(
    appearance,
    likeness,
    rows,
    columns,
    regions,
    offset,
    edge_offset,
    edges,
    dim,
    SCALE: tl.constexpr,
    DB: tl.constexpr,
):
    """Compute exp(-(1 - cos) / scale) of the mean appearance of the two regions that an edge joins."""
    edge, video, d = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, DB)
    first, second = edge_ends(edge, rows, columns)
    a = tl.load(appearance + (video * regions + offset + first) * dim + d, mask=d < dim, other=0.0)
    b = tl.load(appearance + (video * regions + offset + second) * dim + d, mask=d < dim, other=0.0)
    lengths = tl.maximum(tl.sqrt(tl.sum(a * a, 0)), SMALLEST_NORM) * tl.maximum(
        tl.sqrt(tl.sum(b * b, 0)), SMALLEST_NORM
    )
    cosine = tl.sum(a * b, 0) / lengths
    tl.store(likeness + video * edges + edge_offset + edge, tl.exp((cosine - 1.0) / SCALE))


@grid_kernel
def edge_divergence(
    plans,
    values,
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
    """Compute the Jensen-Shannon divergence of two neighbouring regions' plans, averaged over supports."""
    edge, video, i = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, NB)
    first, second = edge_ends(edge, rows, columns)
    a, b = (video * regions + offset + first) * supports, (video * regions + offset + second) * supports
    total = tl.zeros((TB, NB), tl.float32)
    for before in range(0, supports, TB):
        j = before + tl.arange(0, TB)
        used = (j < supports)[:, None] & (i < longest)[None, :]
        p = tl.load(plans + (a + j)[:, None] * pitch + i[None, :], mask=used, other=0.0)
        q = tl.load(plans + (b + j)[:, None] * pitch + i[None, :], mask=used, other=0.0)
        total += 0.5 * (plogp(p) + plogp(q)) - plogp(0.5 * (p + q))
    tl.store(values + video * edges + edge_offset + edge, tl.sum(tl.sum(total, 1), 0) / supports)
