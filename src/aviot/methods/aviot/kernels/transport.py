"""One granularity's transport, a few launches a round: where the supports are, what that costs, and the coupling."""

import math

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.embedding import gelu, normalise
from aviot.methods.aviot.kernels.halves import SplitRows, load_product, store_halves
from aviot.methods.aviot.kernels.places import place_in_video, uniform_source
from aviot.methods.aviot.kernels.record import PlanRecord
from aviot.methods.aviot.kernels.rounds import LevelRun, TransportInputs
from aviot.ot.sinkhorn import block, damping, kernel, sinkhorn, warps_for

TILE = 16  # supports of one program that places them


@kernel
def _move(
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
    """The hidden activations of some supports of one segment of one region.

    Supports are given by their rows; with START they start from uniformly spaced sources and the parent's rows. Lifted
    sources mix as the supports do.
    """
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    j, i, c = tl.program_id(1) * RB + tl.arange(0, RB), tl.arange(0, NB), tl.arange(0, CB)
    if (k == n) | (tl.program_id(1) * RB >= k):  # kept as it is, or no support here
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
def _cost(
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
    """Squared distances in the transport space between some supports of one segment of one region and its sources.

    As |a|^2 + |b|^2 - 2 a b in float64, where nothing cancels.
    """
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
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
    squared = tl.maximum(squared, 0.0)
    top = squared.to(tl.float32)
    tl.store(cost + place[:, None] * NB + i[None, :], top, mask=(j < k)[:, None])
    tl.store(rest + place[:, None] * NB + i[None, :], squared - top, mask=(j < k)[:, None])


@kernel
def _couple(
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
    """Solve one segment of one region. In its last round its rows are the plan's, before that the moved supports'."""
    segment = tl.program_id(0) % M
    local = (tl.program_id(0) // M) % level_regions
    video = (tl.program_id(0) // (M * level_regions)).to(tl.int64)
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    j, i = tl.arange(0, KB), tl.arange(0, NB)
    used = (j < k)[:, None] & (i < n)[None, :]
    region = video * regions + offset + local
    support = region * supports + first + j
    own = support[:, None] * pitch + i[None, :]
    written = (j < k)[:, None] & (i < longest)[None, :]
    if k == n:  # a support for every source
        tl.store(rows + own, ((j[:, None] == i[None, :]) & used).to(tl.float32), mask=written)
        tl.store(mass + support, tl.zeros((KB,), tl.float32) + 1.0 / n, mask=j < k)
        tl.store(entropy + support, tl.zeros((KB,), tl.float32), mask=j < k)
        if CARRY:
            heard = tl.load(relevance + video * frames + start + j, mask=j < k, other=0.0)
            tl.store(carried + video * supports + first + j, heard, mask=j < k)
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
        chaos = -tl.sum(plan * tl.log(tl.where(plan > 0, plan, 1.0)), 1) / log_sources
        tl.store(entropy + support, chaos, mask=j < k)
        if CARRY:  # by rows that sum to one in float64 too: a constant relevance is no signal
            heard = tl.load(relevance + video * frames + start + i, mask=i < n, other=0.0)
            weight = plan.to(tl.float64)
            mixed = tl.sum(weight * heard[None, :], 1) / tl.where(j < k, tl.sum(weight, 1), 1.0)
            tl.store(carried + video * supports + first + j, mixed, mask=j < k)
    else:
        tl.store(rows + own, plan / (received + STABILIZER)[:, None], mask=written)


def transport_level(inputs: TransportInputs, run: LevelRun, record: PlanRecord) -> Float[Tensor, "B K"] | None:
    """Write one granularity's plans into the record; with a relevance, return that of the supports."""
    config, metric, layout, lifted = inputs.config, inputs.metric, inputs.layout, inputs.lifted
    level, offset, parents, relevance = run.level, run.offset, run.parents, run.relevance
    batch, regions, frames, width = lifted.shape
    segments, count = layout.segments, level.regions[0] * level.regions[1]
    problems, slots, sources = batch * count * segments.count, block(layout.slots), block(segments.longest)
    grid = (problems, triton.cdiv(layout.slots, TILE))
    carried = None if relevance is None else relevance.new_empty((batch, layout.supports))
    cost, rest = lifted.new_empty((2, batch * count * layout.supports, sources))
    hidden, second = SplitRows.empty(batch * count * layout.supports, width, lifted.device), metric.second
    unused = metric.shift
    shape = (regions, frames, layout.supports, record.rows.stride(-2), segments.longest, segments.full, segments.count)
    sizes = {"MB": block(segments.count), "NB": sources}
    tile = sizes | {"RB": TILE, "CB": block(width)}
    coupling = {
        "EPSILON": level.epsilon,
        "COST_LIMIT": config.cost_bound * level.epsilon,
        "STABILIZER": config.stabilizer,
        "KB": slots,
        "num_warps": warps_for(slots, sources),
    } | damping(level.epsilon, config)
    for turn in range(level.rounds if run.rounds is None else run.rounds):
        _move[grid](
            lifted,
            unused if parents is None else parents,
            layout.budgets,
            metric.first.bias,
            record.rows,
            hidden.halves,
            hidden.powers,
            *shape,
            width,
            offset,
            count,
            PARENT_WEIGHT=level.parent_weight,
            START=turn == 0,
            HAS_PARENT=parents is not None,
            **tile,
            num_warps=8,
        )
        _cost[grid](
            second.apply(hidden),
            hidden.powers,
            second.largest,
            second.bias,
            inputs.placed,
            layout.budgets,
            metric.scale,
            metric.shift,
            inputs.question_weights,
            cost,
            rest,
            *shape,
            width,
            offset,
            count,
            PLACE_EPS=metric.eps,
            **tile,
            num_warps=8,
        )
        _couple[(problems,)](
            cost,
            rest,
            layout.budgets,
            unused if relevance is None else relevance,
            record.rows,
            record.mass,
            record.entropy,
            unused if carried is None else carried,
            *shape,
            offset,
            count,
            math.log(max(2, frames)),
            LAST=turn == level.rounds - 1,
            CARRY=relevance is not None,
            **sizes,
            **coupling,
        )
    return carried
