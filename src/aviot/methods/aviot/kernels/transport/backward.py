"""Kernels of the last rounds' gradients: from rows and masses to costs, and from costs to lifted sources and supports.

All granularities are one launch: they depend on each other only through starts, which carry no gradient. Values that
the forward kernels did not store are computed again.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import (
    gelu_slope,
    level_value,
    own_segment,
    segment_bounds,
    uniform_source,
)
from aviot.ot.sinkhorn import factor, first_update, kernel


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
    """Write the start of a granularity with one round, as rows: uniformly spaced sources and the parent's rows."""
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    _, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
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
    """Write W1 z + b1 of some supports at the start of their last round; zero in identity segments."""
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
    """Compute the gradient of the cost from that of A = P / m and of m.

    d log P = A (dA - sum A dA) + P dm. An update's reverse takes kappa times a row's sum off it, spread as the row is,
    and the row's factor, which does not change how it is spread, off the plan.
    """
    region, _, _, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    j, i = tl.arange(0, KB), tl.arange(0, NB)
    support = region * supports + first + j
    at = support[:, None] * NB + i[None, :]
    if k == n:  # an identity segment: its plan does not depend on the cost
        tl.store(grad_cost + at, tl.zeros((KB, NB), tl.float32), mask=(j < k)[:, None])
        return
    level_region = region % regions
    epsilon = level_value(level_region, EPSILONS, OFFSETS, LEVELS)
    kappa_s = level_value(level_region, SOURCE_KAPPAS, OFFSETS, LEVELS)
    kappa_t = level_value(level_region, TARGET_KAPPAS, OFFSETS, LEVELS)
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


@triton.jit
def _normalised(rows, C, c, EPS: tl.constexpr):
    """Return (rows - mean) / deviation, and 1 / deviation; zero outside the channels."""
    real = (c < C)[None, :]
    centred = tl.where(real, rows - (tl.sum(tl.where(real, rows, 0.0), 1) / C)[:, None], 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 1) / C + EPS)
    return centred * scale[:, None], scale


@kernel
def place_backward(
    own,
    other,
    grad_cost,
    budgets,
    gain,
    weigh,
    grad_own,
    sums,
    regions,
    frames,
    supports,
    longest,
    full,
    M,
    C,
    SOURCES: tl.constexpr,
    EPS: tl.constexpr,
    MB: tl.constexpr,
    RB: tl.constexpr,
    OB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """Compute the gradient, before the last LayerNorm, of some sources (else supports) of one segment.

    With a = w LN(y) on this side, b on the other and G the cost's gradient, da = 2 (a sum G - G b), which is the same
    for points taken less one of them; dy is LN's reverse of that. `sums` [programs, 3, C] takes the programs' sums of
    da x^ (x^ the normalised y), da and dy, from which the gradients of w, gain, shift and bias are made.
    """
    region, video, start, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    r, c = tl.program_id(1) * RB + tl.arange(0, RB), tl.arange(0, CB)
    supports_before = region * supports + first
    if SOURCES:
        mine, others, here, there = n, k, region * frames + start, supports_before
    else:
        mine, others, here, there = k, n, supports_before, region * frames + start
    real = (c < C)[None, :]
    present = (r < mine)[:, None] & real
    y = (here + r)[:, None] * C + c[None, :]
    ours, scale = _normalised(tl.load(own + y, mask=present, other=0.0), C, c, EPS)
    weight = tl.load(weigh + video * C + c, mask=c < C, other=0.0) * tl.load(gain + c, mask=c < C, other=0.0)
    pivot = tl.sum(tl.where((r == tl.program_id(1) * RB)[:, None], ours, 0.0), 0)
    grad, weighed = tl.zeros((RB, CB), tl.float32), tl.zeros((RB,), tl.float32)
    for before in range(0, others, OB):
        o = before + tl.arange(0, OB)
        if SOURCES:
            at = (supports_before + o)[None, :] * NB + r[:, None]
        else:
            at = (supports_before + r)[:, None] * NB + o[None, :]
        change = tl.load(grad_cost + at, mask=(r < mine)[:, None] & (o < others)[None, :], other=0.0)
        facing = (o < others)[:, None] & real
        z = (there + o)[:, None] * C + c[None, :]
        theirs, _ = _normalised(tl.load(other + z, mask=facing, other=0.0), C, c, EPS)
        away = tl.where(facing, (theirs - pivot[None, :]) * weight[None, :], 0.0)
        grad -= tl.dot(change, away, input_precision="tf32x3")
        weighed += tl.sum(change, 1)
    grad = 2.0 * (grad + (ours - pivot[None, :]) * weight[None, :] * weighed[:, None])
    grad = tl.where(present, grad, 0.0)
    inner = grad * weight[None, :]
    inner -= (tl.sum(inner, 1) / C)[:, None] + ours * (tl.sum(inner * ours, 1) / C)[:, None]
    inner = tl.where(present, inner * scale[:, None], 0.0)
    tl.store(grad_own + y, inner, mask=present)
    programs = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    at = sums + programs * 3 * C + c
    tl.store(at, tl.sum(grad * ours, 0), mask=c < C)
    tl.store(at + C, tl.sum(grad, 0), mask=c < C)
    tl.store(at + 2 * C, tl.sum(inner, 0), mask=c < C)


@kernel
def lift_backward(
    grad_active,
    pre,
    starts,
    budgets,
    grad_lifted,
    grad_sources,
    sums,
    regions,
    frames,
    supports,
    pitch,
    longest,
    full,
    M,
    C,
    MIXED: tl.constexpr,
    OFFSETS: tl.constexpr,
    LEVELS: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """Compute the gradient of a segment's lifted sources: their own, and that of the supports mixed from them.

    `grad_active` and `pre` hold the sources of all regions and then the supports. `grad_lifted` is for W1, which sees
    all of it; `grad_sources` leaves the supports' part out where MIXED is 0: a start of several rounds is cut from its
    sources. `sums` [programs, C] takes the programs' sums over sources and supports.
    """
    region, _, start, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    i, j, c = tl.arange(0, NB), tl.arange(0, KB), tl.program_id(1) * CB + tl.arange(0, CB)
    real = (c < C)[None, :]
    sources = (region * frames + start + i)[:, None] * C + c[None, :]
    support = region * supports + first + j
    behind = (tl.num_programs(0) // M).to(tl.int64) * frames * C
    moved = behind + support[:, None] * C + c[None, :]
    present, there = (i < n)[:, None] & real, (j < k)[:, None] & real
    own = tl.load(grad_active + sources, mask=present, other=0.0)
    own *= gelu_slope(tl.load(pre + sources, mask=present, other=0.0))
    theirs = tl.load(grad_active + moved, mask=there, other=0.0)
    theirs *= gelu_slope(tl.load(pre + moved, mask=there, other=0.0))
    used = (i < n)[:, None] & (j < k)[None, :]
    mixture = tl.load(starts + support[None, :] * pitch + i[:, None], mask=used, other=0.0)
    spread = tl.dot(mixture, theirs, input_precision="tf32x3")
    tl.store(grad_lifted + sources, own + spread, mask=present)
    tl.store(grad_sources + sources, own + spread * level_value(region % regions, MIXED, OFFSETS, LEVELS), mask=present)
    total = tl.sum(own, 0) + tl.sum(theirs, 0)
    tl.store(sums + tl.program_id(0).to(tl.int64) * C + c, total, mask=c < C)
