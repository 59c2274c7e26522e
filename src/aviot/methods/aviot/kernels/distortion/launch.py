"""Launches of the distortion, with gradients."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.common import empty_rows_like
from aviot.methods.aviot.kernels.distortion.forward import segment_distortion
from aviot.methods.aviot.numerics import full_precision
from aviot.methods.aviot.segments import Layout
from aviot.ot.sinkhorn import block

TILE = 16  # supports of one step


class _Plans(NamedTuple):
    """The kernel's inputs, and the distortions, which the forward pass writes and the backward pass reads."""

    products: Float[Tensor, "B regions M n n"]
    rows: Float[Tensor, "B regions K n"]
    mass: Float[Tensor, "B regions K"]
    values: Float[Tensor, "B regions M"]


class _Gradients(NamedTuple):
    """The incoming gradient and the outgoing ones; any tensors in the forward pass."""

    values: Float[Tensor, "B regions M"]
    rows: Float[Tensor, "B regions K n"]
    mass: Float[Tensor, "B regions K"]
    spread: Float[Tensor, "B regions M n n"]


class Distortion(torch.autograd.Function):
    """Every segment's distortion [B,regions,M], of all granularities."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Float[Tensor, "B regions K n"],
        mass: Float[Tensor, "B regions K"],
        sources: Float[Tensor, "B regions N D"],
        layout: Layout,
        stabilizer: float,
    ) -> Float[Tensor, "B regions M"]:
        """Multiply the sources, then launch one program per segment."""
        points = layout.segments.split(sources.double())
        products = points @ points.mT
        values = products.new_empty(products.shape[:3])
        ctx.save_for_backward(rows, mass, sources, products, values)
        ctx.layout, ctx.stabilizer = layout, stabilizer
        unused = _Gradients(values, values, values, values)
        _launch(ctx, _Plans(products, rows, mass, values), unused, dim=sources.shape[-1], reverse=False)
        return values.to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Launch one program per segment, then mix the sources' gradient from the sources."""
        rows, mass, sources, products, values = ctx.saved_tensors
        layout = ctx.layout
        grad_rows, grad_mass = empty_rows_like(rows), torch.empty_like(mass)
        spread = rows.new_empty(products.shape)
        grads = _Gradients(gradients[0].contiguous(), grad_rows, grad_mass, spread)
        _launch(ctx, _Plans(products, rows, mass, values), grads, dim=sources.shape[-1], reverse=True)
        with full_precision(sources.device):
            grad_sources = layout.segments.merge(spread @ layout.segments.split(sources))
        return grad_rows, grad_mass, grad_sources, None, None


def _launch(ctx: Any, plans: _Plans, grads: _Gradients, *, dim: int, reverse: bool) -> None:
    layout, segments = ctx.layout, ctx.layout.segments
    batch, regions = plans.rows.shape[:2]
    segment_distortion[(batch * regions * segments.count,)](
        plans.products,
        plans.rows,
        plans.mass,
        layout.budgets,
        plans.values,
        grads.values,
        grads.rows,
        grads.mass,
        grads.spread,
        regions,
        layout.supports,
        plans.rows.stride(-2),
        segments.longest,
        segments.full,
        segments.count,
        dim,
        STABILIZER=ctx.stabilizer,
        REVERSE=reverse,
        MB=block(segments.count),
        KB=block(layout.slots),
        NB=block(segments.longest),
        TB=TILE,
        num_warps=8 if segments.longest > 32 else 4,
        num_stages=1,
    )
