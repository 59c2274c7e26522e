"""Kernels of the fused output's gradients: to the features, the gates and the plans' rows.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel
from aviot.methods.aviot.kernels.device_functions import segment_bounds
from aviot.methods.aviot.kernels.fusion.forward import mixture_of, split_dot
from aviot.ot.sinkhorn import kernel


@kernel
def mix_backward(
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
    """Compute dB = dY X^T, dX = B^T dY and dgamma = sum_i A dB of one segment at one patch."""
    patch, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(1).to(tl.int64)
    start, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    i, j, d = tl.arange(0, NB), tl.arange(0, KB), tl.arange(0, DB)
    source = ((video * frames + start + i) * patches + patch)[:, None] * dim
    position = (video * patches + patch) * supports + first + j
    at = grad_mixture + position[:, None] * pitch + i[None, :]
    written = (j < k)[:, None] & (i < longest)[None, :]
    if k == n:  # an identity segment: plans and gates have no gradient
        copied = ((video * supports + first + i) * patches + patch)[:, None] * dim
        for channel in range(0, dim, DB):
            if TO_X:
                inside = (i < n)[:, None] & (channel + d < dim)[None, :]
                change = tl.load(gradient + copied + channel + d[None, :], mask=inside, other=0.0)
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
            tl.store(grad_x + source + channel + d[None, :], split_dot(weights, change, HALVES), mask=inside)
    tl.store(at, products, mask=written)
    for branch in tl.static_range(LEVELS):
        region = video * regions + tl.load(region_of_patch + branch * patches + patch)
        own = (region * supports + first + j)[:, None] * pitch + i[None, :]
        share = tl.sum(products * tl.load(rows + own, mask=used, other=0.0), 1)
        tl.store(grad_gates + position * LEVELS + branch, share, mask=j < k)


@grid_kernel
def rows_backward(
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
    """Compute dA, the sum of gamma dB over the patches of one region, for one support."""
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
