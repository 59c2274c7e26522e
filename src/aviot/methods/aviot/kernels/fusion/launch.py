"""Launches of the fused output, with gradients."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.kernels.common import empty_rows_like, region_offsets
from aviot.methods.aviot.kernels.fusion.backward import mix_backward, rows_backward
from aviot.methods.aviot.kernels.fusion.forward import mix_segment
from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.segments import Layout
from aviot.ot.sinkhorn import block

CHANNELS = 128  # of one tile
BACKWARD_CHANNELS = 64  # of one tile of the backward pass
LONG_DIVISOR = 4  # of the channels in float32 beyond 64 sources, so that tiles fit in a multiprocessor's memory
PATCHES = 16  # of a region, per step


def launch_geometry(
    x: Tensor, layout: Layout, channels: int
) -> tuple[tuple[int, int], dict[str, Any], tuple[int, int, int]]:
    """Return the grid, the kernel constants, and the counts that `segment_bounds` takes."""
    segments = layout.segments
    fewer = x.dtype == torch.float32 and segments.longest > 64
    sizes = {"KB": block(layout.slots), "NB": block(segments.longest)}
    constants = {
        "HALVES": x.dtype != torch.float32,
        "MB": block(segments.count),
        "DB": channels // LONG_DIVISOR if fewer else channels,
        "num_warps": 4,
    }
    grid = (x.shape[2] * segments.count, x.shape[0])
    return grid, constants | sizes, (segments.longest, segments.full, segments.count)


def mix_sources(
    x: Float[Tensor, "B N S D"],
    rows: Float[Tensor, "B regions K n"],
    gates: Float[Tensor, "B S K L"],
    region_of_patch: Int[Tensor, "L S"],
    layout: Layout,
) -> Float[Tensor, "B K S D"]:
    """Return (sum_l gamma A) X, the fused features."""
    batch, frames, patches, dim = x.shape
    out = x.new_empty((batch, layout.supports, patches, dim))
    grid, constants, segments = launch_geometry(x, layout, CHANNELS)
    shape = (frames, patches, dim, rows.shape[1], layout.supports, rows.stride(-2), *segments)
    mix_segment[grid](x, rows, gates, region_of_patch, layout.budgets, out, *shape, LEVELS=gates.shape[-1], **constants)
    return out


class FusedFeatures(torch.autograd.Function):
    """`mix_sources` with gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "B N S D"],
        rows: Float[Tensor, "B regions K n"],
        gates: Float[Tensor, "B S K L"],
        partitions: tuple[Partition, ...],
        region_of_patch: Int[Tensor, "L S"],
        layout: Layout,
    ) -> Float[Tensor, "B K S D"]:
        """Mix the sources in one pass over the features."""
        gates = gates.contiguous()
        ctx.save_for_backward(x, rows, gates, region_of_patch)
        ctx.layout, ctx.partitions = layout, partitions
        return mix_sources(x, rows, gates, region_of_patch, layout)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute all gradients in one pass over features and gradient."""
        x, rows, gates, region_of_patch = ctx.saved_tensors
        layout, pitch = ctx.layout, rows.stride(-2)
        gradient = gradients[0].to(x.dtype).contiguous()
        to_x, grad_gates = ctx.needs_input_grad[0], torch.empty_like(gates)
        grad_x = torch.empty_like(x) if to_x else None
        grad_mixture = rows.new_empty((*gates.shape[:3], pitch))
        grid, constants, segments = launch_geometry(x, layout, BACKWARD_CHANNELS)
        mix_backward[grid](
            x,
            rows,
            gates,
            region_of_patch,
            gradient,
            layout.budgets,
            gradient if grad_x is None else grad_x,
            grad_mixture,
            grad_gates,
            *x.shape[1:],
            rows.shape[1],
            layout.supports,
            pitch,
            *segments,
            LEVELS=gates.shape[-1],
            TO_X=to_x,
            PRECISION="tf32x3" if x.dtype == torch.float32 else "ieee",
            **constants,
        )
        return grad_x, _to_rows(grad_mixture, rows, gates, ctx.partitions, layout), grad_gates, None, None, None


def _to_rows(
    grad_mixture: Float[Tensor, "B S K pitch"],
    rows: Float[Tensor, "B regions K n"],
    gates: Float[Tensor, "B S K L"],
    partitions: tuple[Partition, ...],
    layout: Layout,
) -> Float[Tensor, "B regions K n"]:
    grad_rows = empty_rows_like(rows)
    for branch, (each, offset) in enumerate(zip(partitions, region_offsets(partitions), strict=True)):
        rows_backward[(each.count * layout.supports, len(rows))](
            grad_mixture,
            gates,
            grad_rows,
            *each.grid,
            *each.cells,
            rows.shape[1],
            layout.supports,
            rows.stride(-2),
            layout.segments.longest,
            offset,
            branch,
            LEVELS=gates.shape[-1],
            PB=PATCHES,
            NB=block(layout.segments.longest),
        )
    return grad_rows
