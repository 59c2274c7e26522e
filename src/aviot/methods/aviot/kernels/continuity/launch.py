"""Launches of the continuity term, with gradients."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.common import edge_count, empty_rows_like, region_offsets
from aviot.methods.aviot.kernels.continuity.backward import divergence_backward
from aviot.methods.aviot.kernels.continuity.forward import edge_divergence, edge_likeness
from aviot.methods.aviot.regions import Partition
from aviot.ot.sinkhorn import block

TILE = 16  # supports of one step


def _levels(partitions: tuple[Partition, ...]) -> Iterator[tuple[Partition, int, int]]:
    """Yield every granularity but the whole frame, its first region among all, and its first edge."""
    regional = partitions[1:]
    edges = accumulate((edge_count(each.cells) for each in regional[:-1]), initial=0)
    return zip(regional, region_offsets(partitions)[1:], edges, strict=True)


def count_edges(partitions: tuple[Partition, ...]) -> int:
    """Return the number of edges between regions of the same granularity, over all granularities."""
    return sum(edge_count(each.cells) for each in partitions[1:])


def edge_weights(
    means: Float[Tensor, "B regions N D"], partitions: tuple[Partition, ...], scale: float
) -> Float[Tensor, "B edges"]:
    """Return every edge's likeness over its granularity's sum and the number of granularities: they sum to one."""
    appearance = means.detach().mean(2)
    batch, regions, dim = appearance.shape
    edges = count_edges(partitions)
    likeness = appearance.new_empty((batch, edges))
    for each, offset, edge_offset in _levels(partitions):
        counts = (*each.cells, regions, offset, edge_offset, edges, dim)
        edge_likeness[(edge_count(each.cells), batch)](appearance, likeness, *counts, SCALE=scale, DB=block(dim))
    parts = likeness.split([edge_count(each.cells) for each in partitions[1:]], 1)
    return torch.cat([part / part.sum(1, keepdim=True) for part in parts], 1) / len(parts)


class PlanDivergence(torch.autograd.Function):
    """Divergences [B,edges] of neighbouring regions' plans, granularity after granularity."""

    @staticmethod
    def forward(
        ctx: Any, plans: Float[Tensor, "B regions K n"], partitions: tuple[Partition, ...]
    ) -> Float[Tensor, "B edges"]:
        """Launch one program per edge."""
        ctx.save_for_backward(plans)
        ctx.partitions = partitions
        batch, regions, supports, longest = plans.shape
        edges = count_edges(partitions)
        values = plans.new_empty((batch, edges))
        for each, offset, edge_offset in _levels(partitions):
            counts = (*each.cells, regions, offset, edge_offset, edges, supports, plans.stride(-2), longest)
            edge_divergence[(edge_count(each.cells), batch)](plans, values, *counts, TB=TILE, NB=block(longest))
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Launch one program per region and block of supports."""
        (plans,) = ctx.saved_tensors
        batch, regions, supports, longest = plans.shape
        gradient = gradients[0].contiguous()
        grad_plans = empty_rows_like(plans).zero_()  # the whole frame has no neighbour
        for each, offset, edge_offset in _levels(ctx.partitions):
            counts = (*each.cells, regions, offset, edge_offset, gradient.shape[1], supports, plans.stride(-2), longest)
            grid = (each.count, triton.cdiv(supports, TILE), batch)
            divergence_backward[grid](plans, gradient, grad_plans, *counts, TB=TILE, NB=block(longest))
        return grad_plans, None
