"""All granularities' plans by kernels, with the gradient of their last rounds."""

from dataclasses import replace
from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from aviot.config import LevelConfig
from aviot.methods.aviot.kernels.embedding import activate
from aviot.methods.aviot.kernels.halves import SplitRows
from aviot.methods.aviot.kernels.record import PlanRecord
from aviot.methods.aviot.kernels.reverse_coupling import couple_backward, lift_supports, room_like, start_of_one_round
from aviot.methods.aviot.kernels.reverse_embedding import lift_backward, place_backward
from aviot.methods.aviot.kernels.rounds import Rounds
from aviot.methods.aviot.kernels.transport import TILE, _cost, transport_level
from aviot.methods.aviot.metric import MetricParameters
from aviot.methods.aviot.numerics import full_precision
from aviot.ot.sinkhorn import block, damping, warps_for

CHANNELS = 32  # of one program that goes back to the lifted sources
OTHERS = 16  # points on the other side of one step of the cost's reverse


class Plans(torch.autograd.Function):
    """Rows [B,regions,K,n] and masses [B,regions,K] of every region, and without gradient their entropies and the
    supports' relevance, from descriptors, the question's weights and `MetricParameters`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        sources: Float[Tensor, "B regions N D"],
        weigh: Float[Tensor, "B C"] | None,
        rounds: Rounds,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """All rounds, coarse to fine; where each last round starts is kept."""
        record, starts, carried = _forward(rounds)
        ctx.rounds, ctx.weighed = rounds, weigh is not None
        ctx.save_for_backward(sources, starts, *parameters)
        ctx.mark_non_differentiable(record.entropy)
        if carried is not None:
            ctx.mark_non_differentiable(carried)
        return record.rows, record.mass, record.entropy, carried

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Couplings, costs, then the embedding of sources and supports together."""
        sources, starts, *parameters = ctx.saved_tensors
        with full_precision(sources.device):
            to_sources, to_weigh, to_parameters = _backward(
                ctx.rounds, sources, starts, MetricParameters(*parameters), *gradients[:2]
            )
        return to_sources, to_weigh if ctx.weighed else None, None, *to_parameters


def _forward(rounds: Rounds) -> tuple[PlanRecord, Float[Tensor, "B regions K n"], Float[Tensor, "B K"] | None]:
    layout = rounds.layout
    record = PlanRecord.empty(layout, rounds.lifted.shape[1])
    starts = room_like(record.rows)
    how = (rounds.config, rounds.metric, rounds.weigh, rounds.lifted, rounds.placed, layout, record)
    carried: Tensor | None = None
    for level, offset, parents in zip(rounds.levels, rounds.offsets, rounds.parents, strict=True):
        heard = rounds.relevance if parents is None else None
        if level.rounds == 1:
            _start(rounds, level, record, starts, offset, parents)
            last, before = level, parents
        else:
            transport_level(level, *how, offset=offset, parents=parents, rounds=level.rounds - 1)
            here = slice(offset, offset + level.regions[0] * level.regions[1])
            starts[:, here].copy_(record.rows[:, here])
            # a round that starts from where the level's own regions are
            last = replace(level, rounds=1, parent_weight=1.0)
            before = torch.arange(here.start, here.stop, dtype=torch.int32, device=layout.device)
        found = transport_level(last, *how, offset=offset, parents=before, relevance=heard)
        carried = carried if found is None else found
    return record, starts, carried


def _start(
    rounds: Rounds,
    level: LevelConfig,
    record: PlanRecord,
    starts: Float[Tensor, "B regions K n"],
    offset: int,
    parents: Int[Tensor, "R"] | None,
) -> None:
    batch, regions = rounds.lifted.shape[:2]
    count = level.regions[0] * level.regions[1]
    start_of_one_round[(batch * count * rounds.layout.segments.count,)](
        record.rows,
        rounds.metric.shift if parents is None else parents,
        rounds.layout.budgets,
        starts,
        regions,
        rounds.layout.supports,
        starts.stride(-2),
        *rounds.place,
        offset,
        count,
        PARENT_WEIGHT=level.parent_weight,
        HAS_PARENT=parents is not None,
        **rounds.sizes,
    )


def _backward(
    rounds: Rounds,
    sources: Float[Tensor, "B regions N D"],
    starts: Float[Tensor, "B regions K n"],
    parameters: MetricParameters,
    grad_rows: Float[Tensor, "B regions K n"],
    grad_mass: Float[Tensor, "B regions K"],
) -> tuple[Tensor, Tensor, MetricParameters]:
    metric = rounds.metric
    pre = _lift(rounds, starts)
    hidden = activate(pre)
    parts = metric.second.apply(hidden)
    ends = metric.second.total(parts, hidden)
    grad_cost = _couple_backward(rounds, parts, hidden, grad_rows.contiguous(), grad_mass.contiguous())
    grad_ends, sums = _place_backward(rounds, ends, grad_cost)
    along, plain, bias = sums.unbind(1)  # of da x^, da and dy, one a video
    grad_active = grad_ends @ parameters.second.float()
    grad_lifted, grad_sources, first_bias = _lift_backward(rounds, grad_active, pre, starts)
    gradients = MetricParameters(
        first=grad_lifted.flatten(0, 2).T @ sources.flatten(0, 2),
        first_bias=first_bias,
        second=grad_ends.T @ F.gelu(pre),
        second_bias=bias.sum(0),
        gain=(rounds.weigh * along).sum(0),
        shift=(rounds.weigh * plain).sum(0),
    )
    to_weigh = torch.addcmul(metric.scale * along, metric.shift, plain)
    return grad_sources @ parameters.first.float(), to_weigh, gradients


def _lift(rounds: Rounds, starts: Float[Tensor, "B regions K n"]) -> Float[Tensor, "points C"]:
    """The lifted sources of all regions, and then the lifted supports."""
    layout, (batch, regions, frames, width) = rounds.layout, rounds.lifted.shape
    before = batch * regions * frames
    pre = rounds.lifted.new_empty((before + batch * regions * layout.supports, width))
    pre[:before].copy_(rounds.lifted.view(-1, width))
    sizes = {name: rounds.sizes[name] for name in ("MB", "NB")}
    lift_supports[(rounds.problems, triton.cdiv(layout.slots, TILE))](
        rounds.lifted,
        starts,
        layout.budgets,
        rounds.metric.first.bias,
        pre[before:],
        regions,
        frames,
        layout.supports,
        starts.stride(-2),
        *rounds.place,
        width,
        RB=TILE,
        CB=block(width),
        **sizes,
        num_warps=8,
    )
    return pre


def _couple_backward(
    rounds: Rounds,
    parts: Float[Tensor, "points 2C"],
    hidden: SplitRows,
    grad_rows: Float[Tensor, "B regions K n"],
    grad_mass: Float[Tensor, "B regions K"],
) -> Float[Tensor, "B*regions*K n"]:
    layout, metric, (batch, regions, frames, width) = rounds.layout, rounds.metric, rounds.lifted.shape
    sizes, total = rounds.sizes, batch * regions * layout.supports
    cost, rest, grad_cost = parts.new_empty((3, total, sizes["NB"]))
    tile = {"RB": TILE, "CB": block(width), "MB": sizes["MB"], "NB": sizes["NB"]}
    _cost[(rounds.problems, triton.cdiv(layout.slots, TILE))](
        parts[batch * regions * frames :],
        hidden.powers[batch * regions * frames :],
        metric.second.largest,
        metric.second.bias,
        rounds.placed,
        layout.budgets,
        metric.scale,
        metric.shift,
        rounds.weigh,
        cost,
        rest,
        regions,
        frames,
        layout.supports,
        grad_rows.stride(-2),
        *rounds.place,
        width,
        0,
        regions,
        PLACE_EPS=metric.eps,
        **tile,
        num_warps=8,
    )
    updates = [damping(level.epsilon, rounds.config) for level in rounds.levels]
    history = parts.new_empty((rounds.problems, rounds.config.updates, sizes["NB"] + sizes["KB"]))
    couple_backward[(rounds.problems,)](
        cost,
        rest,
        grad_rows,
        grad_mass,
        layout.budgets,
        history,
        grad_cost,
        regions,
        layout.supports,
        grad_rows.stride(-2),
        *rounds.place,
        OFFSETS=rounds.offsets,
        EPSILONS=tuple(level.epsilon for level in rounds.levels),
        SOURCE_KAPPAS=tuple(each["KAPPA_S"] for each in updates),
        TARGET_KAPPAS=tuple(each["KAPPA_T"] for each in updates),
        LEVELS=len(updates),
        COST_BOUND=rounds.config.cost_bound,
        STABILIZER=rounds.config.stabilizer,
        UPDATES=rounds.config.updates,
        **sizes,
        num_warps=warps_for(sizes["KB"], sizes["NB"]),
    )
    return grad_cost


def _place_backward(
    rounds: Rounds, ends: Float[Tensor, "points C"], grad_cost: Float[Tensor, "B*regions*K n"]
) -> tuple[Float[Tensor, "points C"], Float[Tensor, "B 3 C"]]:
    """Of what goes into the last LayerNorm, and each video's sums over points."""
    layout, metric, (batch, regions, frames, width) = rounds.layout, rounds.metric, rounds.lifted.shape
    before = batch * regions * frames
    grad_ends = torch.empty_like(ends)
    tiles = [triton.cdiv(count, TILE) for count in (layout.segments.longest, layout.slots)]
    sums = [ends.new_empty((batch, regions * layout.segments.count * each, 3, width)) for each in tiles]
    sides = (slice(before), slice(before, None))
    for of_sources, own, other, here in zip((True, False), sides, sides[::-1], (0, 1), strict=True):
        place_backward[(rounds.problems, tiles[here])](
            ends[own],
            ends[other],
            grad_cost,
            layout.budgets,
            metric.scale,
            rounds.weigh,
            grad_ends[own],
            sums[here],
            regions,
            frames,
            layout.supports,
            *rounds.place,
            width,
            SOURCES=of_sources,
            EPS=metric.eps,
            MB=rounds.sizes["MB"],
            NB=rounds.sizes["NB"],
            OB=OTHERS,
            RB=TILE,
            CB=block(width),
            num_warps=8,
            num_stages=1,
        )
    return grad_ends, sums[0].sum(1) + sums[1].sum(1)


def _lift_backward(
    rounds: Rounds,
    grad_active: Float[Tensor, "points C"],
    pre: Float[Tensor, "points C"],
    starts: Float[Tensor, "B regions K n"],
) -> tuple[Float[Tensor, "B regions N C"], Float[Tensor, "B regions N C"], Float[Tensor, "C"]]:
    """Of the lifted sources for W1 and for the sources, and of its bias."""
    layout, (_, regions, frames, width) = rounds.layout, rounds.lifted.shape
    grad_lifted, grad_sources = torch.empty_like(rounds.lifted), torch.empty_like(rounds.lifted)
    sums = pre.new_empty((rounds.problems, width))
    lift_backward[(rounds.problems, triton.cdiv(width, CHANNELS))](
        grad_active,
        pre,
        starts,
        layout.budgets,
        grad_lifted,
        grad_sources,
        sums,
        regions,
        frames,
        layout.supports,
        starts.stride(-2),
        *rounds.place,
        width,
        MIXED=tuple(float(level.rounds == 1) for level in rounds.levels),
        OFFSETS=rounds.offsets,
        LEVELS=len(rounds.levels),
        CB=CHANNELS,
        **rounds.sizes,
        num_warps=8,
    )
    return grad_lifted, grad_sources, sums.sum(0)
