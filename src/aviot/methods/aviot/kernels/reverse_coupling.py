"""The reverse pass of every granularity's last round, first part: from rows and masses back to costs.

One program a segment of a region, all granularities in one launch: they depend on each other only through starts, which
carry no gradient. What the forward kernels did not keep is worked out again.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.places import place_in_video, uniform_source
from aviot.ot.sinkhorn import factor, first_update, kernel


def room_like(rows: Float[Tensor, "B regions K n"]) -> Float[Tensor, "B regions K n"]:
    """Memory for as many rows, as far apart."""
    return torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device=rows.device)


@triton.jit
def own_segment(regions, budgets, longest, full, M, MB: tl.constexpr):
    """This program's segment: its region among all videos', the video, and the segment's sources and supports."""
    segment, region = tl.program_id(0) % M, (tl.program_id(0) // M).to(tl.int64)
    video = region // regions
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    return region, video, start, n, first, k


@triton.jit
def of_level(region, VALUES: tl.constexpr, OFFSETS: tl.constexpr, LEVELS: tl.constexpr):
    """The value of the granularity that a region belongs to."""
    value = VALUES[0]
    for level in tl.static_range(1, LEVELS):
        value = tl.where(region >= OFFSETS[level], VALUES[level], value)
    return value


@kernel
def start_of_one_round(
    rows,
    parents,
    budgets,
    starts,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    offset,
    level_regions,
    PARENT_WEIGHT: tl.constexpr,
    HAS_PARENT: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """Where a granularity of one round starts, as rows: from uniformly spaced sources and the parent's rows."""
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    _, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    j, i = tl.arange(0, KB), tl.arange(0, NB)
    used = (j < k)[:, None] & (i < n)[None, :]
    start = (i[None, :] == uniform_source(j, n, k)[:, None]).to(tl.float32)
    if HAS_PARENT:
        parent = (video * regions + tl.load(parents + local)) * supports + first + j
        inherited = tl.load(rows + parent[:, None] * pitch + i[None, :], mask=used, other=0.0)
        start = PARENT_WEIGHT * inherited + (1.0 - PARENT_WEIGHT) * start
    own = (video * regions + offset + local) * supports + first + j
    tl.store(starts + own[:, None] * pitch + i[None, :], start, mask=(j < k)[:, None] & (i < longest)[None, :])


@kernel
def lift_supports(
    lifted,
    starts,
    budgets,
    first_bias,
    pre,
    regions,
    frames,
    supports,
    pitch,
    longest,
    full,
    M,
    C,
    MB: tl.constexpr,
    RB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """W1 z + b1 of some supports at the start of their last round; zero where a segment is kept as it is."""
    region, _, start, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    j, i, c = tl.program_id(1) * RB + tl.arange(0, RB), tl.arange(0, NB), tl.arange(0, CB)
    if tl.program_id(1) * RB >= k:
        return
    support = region * supports + first + j
    used = (j < tl.where(k < n, k, 0))[:, None] & (i < n)[None, :]
    coefficients = tl.load(starts + support[:, None] * pitch + i[None, :], mask=used, other=0.0)
    inside = (i < n)[:, None] & (c < C)[None, :]
    points = tl.load(lifted + (region * frames + start + i)[:, None] * C + c[None, :], mask=inside, other=0.0)
    rest = tl.where(k < n, 1.0, 0.0) - tl.sum(coefficients, 1)
    bias = tl.load(first_bias + c, mask=c < C, other=0.0)
    mixed = tl.dot(coefficients, points, input_precision="tf32x3") + rest[:, None] * bias[None, :]
    tl.store(pre + support[:, None] * C + c[None, :], mixed, mask=(j < k)[:, None] & (c < C)[None, :])


@kernel
def couple_backward(
    cost,
    rest,
    grad_rows,
    grad_mass,
    budgets,
    history,
    grad_cost,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    OFFSETS: tl.constexpr,
    EPSILONS: tl.constexpr,
    SOURCE_KAPPAS: tl.constexpr,
    TARGET_KAPPAS: tl.constexpr,
    LEVELS: tl.constexpr,
    COST_BOUND: tl.constexpr,
    STABILIZER: tl.constexpr,
    UPDATES: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """The gradient of the cost from that of A = P / m and of m.

    d log P = A (dA - sum A dA) + P dm. An update's reverse takes kappa times a row's sum off it, spread as the row is,
    and the row's factor, which does not change how it is spread, off the plan.
    """
    region, _, _, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    j, i = tl.arange(0, KB), tl.arange(0, NB)
    support = region * supports + first + j
    at = support[:, None] * NB + i[None, :]
    if k == n:  # kept as it is, whatever it costs
        tl.store(grad_cost + at, tl.zeros((KB, NB), tl.float32), mask=(j < k)[:, None])
        return
    level_region = region % regions
    epsilon = of_level(level_region, EPSILONS, OFFSETS, LEVELS)
    kappa_s = of_level(level_region, SOURCE_KAPPAS, OFFSETS, LEVELS)
    kappa_t = of_level(level_region, TARGET_KAPPAS, OFFSETS, LEVELS)
    used = (j < k)[:, None] & (i < n)[None, :]
    away = tl.load(cost + at, mask=used, other=0.0).to(tl.float64) + tl.load(rest + at, mask=used, other=0.0)
    shrink = tl.minimum(COST_BOUND * epsilon / (tl.max(tl.max(away, 1), 0) + STABILIZER), 1.0)
    plan, _, g = first_update(away * (-shrink / epsilon), n, k, kappa_s, kappa_t, tl.float32, KB, NB)
    past = history + tl.program_id(0).to(tl.int64) * UPDATES * (NB + KB)
    sources_there, supports_there = n.to(tl.float32), k.to(tl.float32)
    for step in range(1, UPDATES):
        change = factor(tl.sum(plan, 0), sources_there, i < n, kappa_s, tl.float32)
        plan = plan * change[None, :]
        tl.store(past + step * (NB + KB) + i, 1.0 / change)
        change = factor(tl.sum(plan, 1), supports_there, j < k, kappa_t, tl.float32)
        plan = plan * change[:, None]
        tl.store(past + step * (NB + KB) + NB + j, 1.0 / change)
    tl.debug_barrier()
    received = tl.where(j < k, tl.sum(plan, 1), 1.0)
    conditional = plan / received[:, None]
    change = tl.load(grad_rows + support[:, None] * pitch + i[None, :], mask=used, other=0.0)
    grad = conditional * (change - tl.sum(conditional * change, 1)[:, None])
    grad += plan * tl.load(grad_mass + support, mask=j < k, other=0.0)[:, None]
    for back in range(1, UPDATES):
        step = UPDATES - back
        total = tl.where(j < k, tl.sum(plan, 1), 1.0)
        grad -= plan * (kappa_t * tl.sum(grad, 1) / total)[:, None]
        plan = plan * tl.load(past + step * (NB + KB) + NB + j)[:, None]
        total = tl.where(i < n, tl.sum(plan, 0), 1.0)
        grad -= plan * (kappa_s * tl.sum(grad, 0) / total)[None, :]
        plan = plan * tl.load(past + step * (NB + KB) + i)[None, :]
    total = tl.where(j < k, tl.sum(plan, 1), 1.0)
    grad -= plan * (kappa_t * tl.sum(grad, 1) / total)[:, None]
    plan = plan * tl.exp(-g)[:, None]
    total = tl.where(i < n, tl.sum(plan, 0), 1.0)
    grad -= plan * (kappa_s * tl.sum(grad, 0) / total)[None, :]
    tl.store(grad_cost + at, tl.where(used, grad * (-shrink / epsilon), 0.0), mask=(j < k)[:, None])
