"""The distortion of every segment's plan as forms of its sources' products, and the reverse pass.

With G the products of a segment's sources, s_j = m_j / (m_j + delta) and z_j = s_j sum_i A_ij x_i,
|x_i - z_j|^2 = G_ii - 2 s_j (A G)_ji + s_j^2 (A G A)_jj. The products are float64, in which those of float32 numbers
are exact, so that nothing is lost where points nearly coincide far from the origin.
"""

from typing import Any

import torch
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.reverse_coupling import own_segment, room_like
from aviot.methods.aviot.layout import Layout
from aviot.methods.aviot.numerics import full_precision
from aviot.ot.sinkhorn import block, kernel

TILE = 16  # supports of one step


@kernel
def _distortion(
    products,
    rows,
    mass,
    budgets,
    values,
    gradient,
    grad_rows,
    grad_mass,
    spread,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    dim,
    STABILIZER: tl.constexpr,
    REVERSE: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
    TB: tl.constexpr,
):
    """sum_ij P_ij |x_i - z_j|^2 / (D sum_ij P_ij) of one segment of one region; with REVERSE its gradients.

    Sources carry a gradient as parts of z alone: dz_j = -c_j sum_i A_ij x_i with c_j = 2 m_j (1 - s_j) over the
    denominator, where nothing is subtracted. `spread` takes -A^T diag(s c) A, which times the sources is theirs.
    """
    region, _, _, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    problem = tl.program_id(0).to(tl.int64)
    i, all_supports = tl.arange(0, NB), tl.arange(0, KB)
    support = region * supports + first
    moving = tl.where(k < n, k, 0)  # a segment that is kept as it is has no distortion
    there = tl.load(mass + support + all_supports, mask=all_supports < k, other=0.0).to(tl.float64)
    over = tl.sum(there, 0) * dim
    grid = products + problem * longest * longest
    square = (i < n)[:, None] & (i < n)[None, :]
    gram = tl.load(grid + i[:, None] * longest + i[None, :], mask=square, other=0.0)
    length = tl.load(grid + i * longest + i, mask=i < n, other=0.0)
    total = tl.zeros((TB,), tl.float64)
    share = tl.zeros((NB, NB), tl.float32)
    mean, change = total, 0.0
    if REVERSE:
        mean = tl.load(values + problem)
        change = tl.load(gradient + problem).to(tl.float64) / over
    for before in range(0, moving, TB):
        j = before + tl.arange(0, TB)
        used = (j < k)[:, None] & (i < n)[None, :]
        at = (support + j)[:, None] * pitch + i[None, :]
        row = tl.load(rows + at, mask=used, other=0.0)
        a = row.to(tl.float64)
        a = a / tl.where(j < k, tl.sum(a, 1), 1.0)[:, None]  # what a sum misses one by would move points far away
        m = tl.load(mass + support + j, mask=j < k, other=0.0).to(tl.float64)
        rest = STABILIZER / (m + STABILIZER)
        kept = 1.0 - rest
        along = tl.dot(a, gram, out_dtype=tl.float64)
        centre = tl.sum(a * along, 1)
        away = length[None, :] - 2.0 * kept[:, None] * along + (kept * kept * centre)[:, None]
        away = tl.where(used, away, 0.0)
        if REVERSE:
            pull = 2.0 * m * rest * change
            to_plan = (away - mean * dim) * change
            to_rows = m[:, None] * to_plan - (kept * pull)[:, None] * along
            tl.store(grad_rows + at, tl.where(used, to_rows, 0.0), mask=(j < k)[:, None] & (i < longest)[None, :])
            to_mass = tl.sum(tl.where(used, a * to_plan, 0.0), 1) - pull * centre * rest / (m + STABILIZER)
            tl.store(grad_mass + support + j, to_mass, mask=j < k)
            weight = row * (kept * pull).to(tl.float32)[:, None]
            share -= tl.dot(tl.trans(weight), row, input_precision="tf32x3")
        else:
            total += m * tl.sum(a * away, 1)
    if REVERSE:
        for before in range(moving, k, TB):
            j = before + tl.arange(0, TB)
            written = (j < k)[:, None] & (i < longest)[None, :]
            tl.store(grad_rows + (support + j)[:, None] * pitch + i[None, :], 0.0, mask=written)
            tl.store(grad_mass + support + j, 0.0, mask=j < k)
        inside = (i < longest)[:, None] & (i < longest)[None, :]
        tl.store(spread + problem * longest * longest + i[:, None] * longest + i[None, :], share, mask=inside)
    else:
        tl.store(values + problem, tl.sum(total, 0) / over)


class Distortion(torch.autograd.Function):
    """Every segment's distortion [B,regions,M]: `aviot.methods.aviot.objective.distortion` of all granularities."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Float[Tensor, "B regions K n"],
        mass: Float[Tensor, "B regions K"],
        sources: Float[Tensor, "B regions N D"],
        layout: Layout,
        stabilizer: float,
    ) -> Float[Tensor, "B regions M"]:
        """The sources' products, then one program a segment."""
        points = layout.segments.split(sources.double())
        products = points @ points.mT
        values = products.new_empty(products.shape[:3])
        ctx.save_for_backward(rows, mass, sources, products, values)
        ctx.layout, ctx.stabilizer = layout, stabilizer
        unused = (values,) * 4
        _launch(layout, stabilizer, products, rows, mass, values, *unused, dim=sources.shape[-1], reverse=False)
        return values.to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """One program a segment, then its sources as mixtures of themselves."""
        rows, mass, sources, products, values = ctx.saved_tensors
        layout = ctx.layout
        grad_rows, grad_mass = room_like(rows), torch.empty_like(mass)
        spread = rows.new_empty(products.shape)
        grads = (gradients[0].contiguous(), grad_rows, grad_mass, spread)
        _launch(layout, ctx.stabilizer, products, rows, mass, values, *grads, dim=sources.shape[-1], reverse=True)
        with full_precision(sources.device):
            grad_sources = layout.segments.merge(spread @ layout.segments.split(sources))
        return grad_rows, grad_mass, grad_sources, None, None


def _launch(layout: Layout, stabilizer: float, products: Tensor, *tensors: Tensor, dim: int, reverse: bool) -> None:
    rows, mass, values, gradient, grad_rows, grad_mass, spread = tensors
    batch, regions = rows.shape[:2]
    segments = layout.segments
    _distortion[(batch * regions * segments.count,)](
        products,
        rows,
        mass,
        layout.budgets,
        values,
        gradient,
        grad_rows,
        grad_mass,
        spread,
        regions,
        layout.supports,
        rows.stride(-2),
        segments.longest,
        segments.full,
        segments.count,
        dim,
        STABILIZER=stabilizer,
        REVERSE=reverse,
        MB=block(segments.count),
        KB=block(layout.slots),
        NB=block(segments.longest),
        TB=TILE,
        num_warps=8 if segments.longest > 32 else 4,
        num_stages=1,
    )
