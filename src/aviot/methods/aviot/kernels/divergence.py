"""How far neighbouring regions' plans are apart, with the reverse pass, and how alike the regions look."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.lattice import edge_count, ends_of, neighbour
from aviot.methods.aviot.kernels.means import cells
from aviot.methods.aviot.kernels.reverse_coupling import room_like
from aviot.methods.aviot.kernels.tables import offsets_of
from aviot.methods.aviot.regions import Partition
from aviot.ot.sinkhorn import block

TILE = 16  # supports of one step
SMALLEST = tl.constexpr(torch.finfo(torch.float32).tiny)  # what the logarithm of anything smaller is taken of
SMALLEST_NORM = tl.constexpr(1e-8)


@triton.jit
def plogp(p):
    """p log p with 0 log 0 = 0."""
    return p * tl.log(tl.maximum(p, SMALLEST))


@cells
def _likeness(
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
    """exp(-(1 - cos) / scale) of the mean appearance of the two regions that an edge joins."""
    edge, video, d = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, DB)
    first, second = ends_of(edge, rows, columns)
    a = tl.load(appearance + (video * regions + offset + first) * dim + d, mask=d < dim, other=0.0)
    b = tl.load(appearance + (video * regions + offset + second) * dim + d, mask=d < dim, other=0.0)
    lengths = tl.maximum(tl.sqrt(tl.sum(a * a, 0)), SMALLEST_NORM) * tl.maximum(
        tl.sqrt(tl.sum(b * b, 0)), SMALLEST_NORM
    )
    cosine = tl.sum(a * b, 0) / lengths
    tl.store(likeness + video * edges + edge_offset + edge, tl.exp((cosine - 1.0) / SCALE))


@cells
def _divergence(
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
    """The Jensen-Shannon divergence of the plans of two neighbouring regions, averaged over supports."""
    edge, video, i = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, NB)
    first, second = ends_of(edge, rows, columns)
    a, b = (video * regions + offset + first) * supports, (video * regions + offset + second) * supports
    total = tl.zeros((TB, NB), tl.float32)
    for before in range(0, supports, TB):
        j = before + tl.arange(0, TB)
        used = (j < supports)[:, None] & (i < longest)[None, :]
        p = tl.load(plans + (a + j)[:, None] * pitch + i[None, :], mask=used, other=0.0)
        q = tl.load(plans + (b + j)[:, None] * pitch + i[None, :], mask=used, other=0.0)
        total += 0.5 * (plogp(p) + plogp(q)) - plogp(0.5 * (p + q))
    tl.store(values + video * edges + edge_offset + edge, tl.sum(tl.sum(total, 1), 0) / supports)


@cells
def _divergence_backward(
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
    """(log p - log of the mixture) / 2 over the edges of one region, for some supports; zero where p is."""
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


def _levels(partitions: tuple[Partition, ...]) -> Iterator[tuple[Partition, int, int]]:
    """Every granularity but the whole frame, its first region among all, and its first edge."""
    regional = partitions[1:]
    edges = accumulate((edge_count(each.cells) for each in regional[:-1]), initial=0)
    return zip(regional, offsets_of(partitions)[1:], edges, strict=True)


def edges_of(partitions: tuple[Partition, ...]) -> int:
    """Edges between regions of the same granularity, over all granularities."""
    return sum(edge_count(each.cells) for each in partitions[1:])


def edge_weights(
    means: Float[Tensor, "B regions N D"], partitions: tuple[Partition, ...], scale: float
) -> Float[Tensor, "B edges"]:
    """Every edge's likeness over its granularity's sum, divided by the number of granularities: they sum to one."""
    appearance = means.detach().mean(2)
    batch, regions, dim = appearance.shape
    edges = edges_of(partitions)
    likeness = appearance.new_empty((batch, edges))
    for each, offset, edge_offset in _levels(partitions):
        place = (*each.cells, regions, offset, edge_offset, edges, dim)
        _likeness[(edge_count(each.cells), batch)](appearance, likeness, *place, SCALE=scale, DB=block(dim))
    parts = likeness.split([edge_count(each.cells) for each in partitions[1:]], 1)
    return torch.cat([part / part.sum(1, keepdim=True) for part in parts], 1) / len(parts)


class Divergence(torch.autograd.Function):
    """Divergences [B,edges] of neighbouring regions' plans, granularity after granularity."""

    @staticmethod
    def forward(
        ctx: Any, plans: Float[Tensor, "B regions K n"], partitions: tuple[Partition, ...]
    ) -> Float[Tensor, "B edges"]:
        """One program an edge."""
        ctx.save_for_backward(plans)
        ctx.partitions = partitions
        batch, regions, supports, longest = plans.shape
        edges = edges_of(partitions)
        values = plans.new_empty((batch, edges))
        for each, offset, edge_offset in _levels(partitions):
            place = (*each.cells, regions, offset, edge_offset, edges, supports, plans.stride(-2), longest)
            _divergence[(edge_count(each.cells), batch)](plans, values, *place, TB=TILE, NB=block(longest))
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """One program some supports of a region."""
        (plans,) = ctx.saved_tensors
        batch, regions, supports, longest = plans.shape
        gradient, grad_plans = gradients[0].contiguous(), room_like(plans).zero_()  # the whole frame has no neighbour
        for each, offset, edge_offset in _levels(ctx.partitions):
            place = (*each.cells, regions, offset, edge_offset, gradient.shape[1], supports, plans.stride(-2), longest)
            grid = (each.count, triton.cdiv(supports, TILE), batch)
            _divergence_backward[grid](plans, gradient, grad_plans, *place, TB=TILE, NB=block(longest))
        return grad_plans, None
