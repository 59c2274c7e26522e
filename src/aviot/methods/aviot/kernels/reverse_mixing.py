"""The fused output with its reverse pass: to the features, to the plans' rows and to the gates."""

from typing import Any

import torch
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.kernels.means import cells
from aviot.methods.aviot.kernels.mixing import geometry, mix_plans, mixture_of, product
from aviot.methods.aviot.kernels.places import place_in_video
from aviot.methods.aviot.kernels.reverse_coupling import room_like
from aviot.methods.aviot.kernels.tables import offsets_of
from aviot.methods.aviot.layout import Layout
from aviot.methods.aviot.regions import Partition
from aviot.ot.sinkhorn import block, kernel

CHANNELS = 64  # of one tile
PATCHES = 16  # of one step over a region's


@kernel
def _mix_backward(
    x,
    rows,
    gates,
    region_of_patch,
    gradient,
    budgets,
    grad_x,
    grad_mixture,
    grad_gates,
    frames,
    patches,
    dim,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    LEVELS: tl.constexpr,
    TO_X: tl.constexpr,
    HALVES: tl.constexpr,
    PRECISION: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
    DB: tl.constexpr,
):
    """dB = dY X^T, dX = B^T dY and dgamma = sum_i A dB of one segment at one patch."""
    patch, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(1).to(tl.int64)
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    i, j, d = tl.arange(0, NB), tl.arange(0, KB), tl.arange(0, DB)
    source = ((video * frames + start + i) * patches + patch)[:, None] * dim
    position = (video * patches + patch) * supports + first + j
    at = grad_mixture + position[:, None] * pitch + i[None, :]
    written = (j < k)[:, None] & (i < longest)[None, :]
    if k == n:  # every support is its source, whatever plans and gates say
        kept = ((video * supports + first + i) * patches + patch)[:, None] * dim
        for channel in range(0, dim, DB):
            if TO_X:
                inside = (i < n)[:, None] & (channel + d < dim)[None, :]
                change = tl.load(gradient + kept + channel + d[None, :], mask=inside, other=0.0)
                tl.store(grad_x + source + channel + d[None, :], change, mask=inside)
        tl.store(at, tl.zeros((KB, NB), tl.float32), mask=written)
        for branch in tl.static_range(LEVELS):
            tl.store(grad_gates + position * LEVELS + branch, tl.zeros((KB,), tl.float32), mask=j < k)
        return
    used = (j < k)[:, None] & (i < n)[None, :]
    mixture = mixture_of(
        rows, gates, region_of_patch, video, patch, first, n, k, patches, regions, supports, pitch, LEVELS, KB, NB
    )
    weights = tl.trans(mixture)
    target = ((video * supports + first + j) * patches + patch)[:, None] * dim
    products = tl.zeros((KB, NB), tl.float32)
    for channel in range(0, dim, DB):
        real = channel + d < dim
        inside = (i < n)[:, None] & real[None, :]
        tile = tl.load(x + source + channel + d[None, :], mask=inside, other=0.0)
        change = tl.load(gradient + target + channel + d[None, :], mask=(j < k)[:, None] & real[None, :], other=0.0)
        products = tl.dot(change, tl.trans(tile), products, input_precision=PRECISION)
        if TO_X:
            tl.store(grad_x + source + channel + d[None, :], product(weights, change, HALVES), mask=inside)
    tl.store(at, products, mask=written)
    for branch in tl.static_range(LEVELS):
        region = video * regions + tl.load(region_of_patch + branch * patches + patch)
        own = (region * supports + first + j)[:, None] * pitch + i[None, :]
        share = tl.sum(products * tl.load(rows + own, mask=used, other=0.0), 1)
        tl.store(grad_gates + position * LEVELS + branch, share, mask=j < k)


@cells
def _to_regions(
    grad_mixture,
    gates,
    grad_rows,
    height,
    width,
    rows,
    columns,
    regions,
    supports,
    pitch,
    longest,
    offset,
    branch,
    LEVELS: tl.constexpr,
    PB: tl.constexpr,
    NB: tl.constexpr,
):
    """dA = sum of gamma dB over the patches of one region, of one support."""
    region, support = tl.program_id(0) // supports, tl.program_id(0) % supports
    video = tl.program_id(1).to(tl.int64)
    row, column = region // columns, region % columns
    top, bottom = tl.cdiv(row * height, rows), tl.cdiv((row + 1) * height, rows)
    left, right = tl.cdiv(column * width, columns), tl.cdiv((column + 1) * width, columns)
    wide = right - left
    count = (bottom - top) * wide
    p, i = tl.arange(0, PB), tl.arange(0, NB)
    total = tl.zeros((PB, NB), tl.float32)
    for first in range(0, count, PB):
        inside = first + p < count
        patch = (top + (first + p) // wide) * width + left + (first + p) % wide
        position = (video * height * width + patch) * supports + support
        share = tl.load(gates + position * LEVELS + branch, mask=inside, other=0.0)
        at = position[:, None] * pitch + i[None, :]
        change = tl.load(grad_mixture + at, mask=inside[:, None] & (i < longest)[None, :], other=0.0)
        total += share[:, None] * change
    target = (video * regions + offset + region) * supports + support
    tl.store(grad_rows + target * pitch + i, tl.sum(total, 0), mask=i < longest)


class Mix(torch.autograd.Function):
    """`mix_plans` with its reverse pass."""

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
        """One pass over the features."""
        gates = gates.contiguous()
        ctx.save_for_backward(x, rows, gates, region_of_patch)
        ctx.layout, ctx.partitions = layout, partitions
        return mix_plans(x, rows, gates, region_of_patch, layout)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """One pass over features and gradient for all."""
        x, rows, gates, region_of_patch = ctx.saved_tensors
        layout, pitch = ctx.layout, rows.stride(-2)
        gradient = gradients[0].to(x.dtype).contiguous()
        to_x, grad_gates = ctx.needs_input_grad[0], torch.empty_like(gates)
        grad_x = torch.empty_like(x) if to_x else None
        grad_mixture = rows.new_empty((*gates.shape[:3], pitch))
        grid, how, segments = geometry(x, layout, CHANNELS)
        _mix_backward[grid](
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
            **how,
        )
        return grad_x, _to_rows(grad_mixture, rows, gates, ctx.partitions, layout), grad_gates, None, None, None


def _to_rows(
    grad_mixture: Float[Tensor, "B S K pitch"],
    rows: Float[Tensor, "B regions K n"],
    gates: Float[Tensor, "B S K L"],
    partitions: tuple[Partition, ...],
    layout: Layout,
) -> Float[Tensor, "B regions K n"]:
    grad_rows = room_like(rows)
    for branch, (each, offset) in enumerate(zip(partitions, offsets_of(partitions), strict=True)):
        _to_regions[(each.count * layout.supports, len(rows))](
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
