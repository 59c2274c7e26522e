"""Kernels of one round: move the supports, compute their costs, solve the coupling.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import at_least, gelu, segment_bounds, uniform_source
from aviot.methods.aviot.kernels.embedding.forward import normalise
from aviot.methods.aviot.kernels.split_half_matmul.forward import load_product, store_halves
from aviot.ot.sinkhorn import kernel, sinkhorn


@kernel
def move_supports(
    lifted,
    parents,
    budgets,
    first_bias,
    rows,
    halves,
    powers,
    regions,
    frames,
    supports,
    pitch,
    longest,
    full,
    M,
    C,
    offset,
    level_regions,
    PARENT_WEIGHT: tl.constexpr,
    START: tl.constexpr,
    HAS_PARENT: tl.constexpr,
    MB: tl.constexpr,
    RB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """Compute the hidden activations of some supports of one segment of one region.

    Supports are given by their rows; with START they start from uniformly spaced sources and the parent's rows. Lifted
    sources mix as the supports do.
    """
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    start, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    j, i, c = tl.program_id(1) * RB + tl.arange(0, RB), tl.arange(0, NB), tl.arange(0, CB)
    if (k == n) | (tl.program_id(1) * RB >= k):  # an identity segment, or no support here
        return
    used = (j < k)[:, None] & (i < n)[None, :]
    region = video * regions + offset + local
    if START:
        coefficients = (i[None, :] == uniform_source(j, n, k)[:, None]).to(tl.float32)
        if HAS_PARENT:
            parent = (video * regions + tl.load(parents + local)) * supports
            at = (parent + first + j)[:, None] * pitch + i[None, :]
            inherited = tl.load(rows + at, mask=used, other=0.0)
            coefficients = PARENT_WEIGHT * inherited + (1.0 - PARENT_WEIGHT) * coefficients
        coefficients = tl.where(used, coefficients, 0.0)
    else:
        at = (region * supports + first + j)[:, None] * pitch + i[None, :]
        coefficients = tl.load(rows + at, mask=used, other=0.0)
    inside = (i < n)[:, None] & (c < C)[None, :]
    points = tl.load(lifted + (region * frames + start + i)[:, None] * C + c[None, :], mask=inside, other=0.0)
    rest = 1.0 - tl.sum(coefficients, 1)
    bias = tl.load(first_bias + c, mask=c < C, other=0.0)
    pre = tl.dot(coefficients, points, input_precision="tf32x3") + rest[:, None] * bias[None, :]
    place = (video * level_regions + local) * supports + first + j
    store_halves(gelu(pre), halves, powers, place, j < k, C, c)


@kernel
def support_costs(
    parts,
    powers,
    largest,
    bias,
    placed,
    budgets,
    scale,
    shift,
    weigh,
    cost,
    rest,
    regions,
    frames,
    supports,
    pitch,
    longest,
    full,
    M,
    C,
    offset,
    level_regions,
    PLACE_EPS: tl.constexpr,
    MB: tl.constexpr,
    RB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """Compute squared distances in the transport space between a segment's sources and some of its supports.

    As |a|^2 + |b|^2 - 2 a b in float64, where nothing cancels.
    """
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    start, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    j, i, c = tl.program_id(1) * RB + tl.arange(0, RB), tl.arange(0, NB), tl.arange(0, CB)
    if (k == n) | (tl.program_id(1) * RB >= k):
        return
    region = video * regions + offset + local
    place = (video * level_regions + local) * supports + first + j
    inside = (i < n)[:, None] & (c < C)[None, :]
    b = tl.load(placed + (region * frames + start + i)[:, None] * C + c[None, :], mask=inside, other=0.0)
    a = load_product(parts, powers, largest, bias, place, j < k, C, c)
    a = normalise(a, scale, shift, weigh + video * C, C, c, PLACE_EPS).to(tl.float64)
    b = b.to(tl.float64)
    squared = tl.sum(a * a, 1)[:, None] + tl.sum(b * b, 1)[None, :]
    squared -= 2.0 * tl.dot(a, tl.trans(b), out_dtype=tl.float64)
    # in two parts of float32, which the solver reads four at a time
    squared = at_least(squared, 0.0)
    top = squared.to(tl.float32)
    tl.store(cost + place[:, None] * NB + i[None, :], top, mask=(j < k)[:, None])
    tl.store(rest + place[:, None] * NB + i[None, :], squared - top, mask=(j < k)[:, None])


@kernel
def couple_segment(
    cost,
    rest,
    budgets,
    relevance,
    rows,
    mass,
    entropy,
    carried,
    regions,
    frames,
    supports,
    pitch,
    longest,
    full,
    M,
    offset,
    level_regions,
    log_sources,
    LAST: tl.constexpr,
    CARRY: tl.constexpr,
    EPSILON: tl.constexpr,
    COST_LIMIT: tl.constexpr,
    STABILIZER: tl.constexpr,
    KAPPA_S: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """Solve one segment of one region; the last round writes the plan's rows, earlier ones the moved supports'."""
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    start, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    j, i = tl.arange(0, KB), tl.arange(0, NB)
    used = (j < k)[:, None] & (i < n)[None, :]
    region = video * regions + offset + local
    support = region * supports + first + j
    own = support[:, None] * pitch + i[None, :]
    written = (j < k)[:, None] & (i < longest)[None, :]
    if k == n:  # an identity segment: a support for every source
        tl.store(rows + own, ((j[:, None] == i[None, :]) & used).to(tl.float32), mask=written)
        tl.store(mass + support, tl.zeros((KB,), tl.float32) + 1.0 / n, mask=j < k)
        tl.store(entropy + support, tl.zeros((KB,), tl.float32), mask=j < k)
        if CARRY:
            relevances = tl.load(relevance + video * frames + start + j, mask=j < k, other=0.0)
            tl.store(carried + video * supports + first + j, relevances, mask=j < k)
        return
    place = (video * level_regions + local) * supports + first + j
    at = place[:, None] * NB + i[None, :]
    away = tl.load(cost + at, mask=used, other=0.0).to(tl.float64) + tl.load(rest + at, mask=used, other=0.0)
    shrink = tl.minimum(COST_LIMIT / (tl.max(tl.max(away, 1), 0) + STABILIZER), 1.0)
    plan = sinkhorn(away * (-shrink / EPSILON), n, k, KAPPA_S, KAPPA_T, UPDATES, tl.float32, KB, NB)
    received = tl.where(j < k, tl.sum(plan, 1), 1.0)
    if LAST:
        plan = plan / received[:, None]
        tl.store(rows + own, plan, mask=written)
        tl.store(mass + support, received, mask=j < k)
        row_entropy = -tl.sum(plan * tl.log(tl.where(plan > 0, plan, 1.0)), 1) / log_sources
        tl.store(entropy + support, row_entropy, mask=j < k)
        if CARRY:  # by rows that sum to one in float64 too, so that a constant relevance stays constant
            relevances = tl.load(relevance + video * frames + start + i, mask=i < n, other=0.0)
            weight = plan.to(tl.float64)
            mixed = tl.sum(weight * relevances[None, :], 1) / tl.where(j < k, tl.sum(weight, 1), 1.0)
            tl.store(carried + video * supports + first + j, mixed, mask=j < k)
    else:
        tl.store(rows + own, plan / (received + STABILIZER)[:, None], mask=written)
