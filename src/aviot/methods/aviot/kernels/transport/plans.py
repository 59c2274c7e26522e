"""All granularities' plans with the gradient of their last rounds."""

from dataclasses import replace
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from aviot.methods.aviot.kernels.common import PlanBuffers, empty_rows_like
from aviot.methods.aviot.kernels.embedding import activate
from aviot.methods.aviot.kernels.split_half_matmul import SplitRows
from aviot.methods.aviot.kernels.transport.backward import (
    couple_backward,
    lift_backward,
    lift_supports,
    place_backward,
    start_of_one_round,
)
from aviot.methods.aviot.kernels.transport.forward import support_costs
from aviot.methods.aviot.kernels.transport.launch import TILE, LevelRun, TransportInputs, transport_level
from aviot.methods.aviot.metric import MetricParameters
from aviot.methods.aviot.numerics import full_precision
from aviot.ot.sinkhorn import block, damping, warps_for

CHANNELS = 32  # of one program of `lift_backward`
OTHERS = 16  # points on the other side in one step of `place_backward`


class TransportPlans(torch.autograd.Function):
    """All regions' plans from descriptors, the question's weights and `MetricParameters`.

    Rows [B,regions,K,n] and masses [B,regions,K] with gradients; entropies and the supports' relevance without.
    """

    @staticmethod
    def forward(
        ctx: Any,
        sources: Float[Tensor, "B regions N D"],
        question_weights: Float[Tensor, "B C"] | None,
        inputs: TransportInputs,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Run all rounds, coarse to fine, and save the start of each last round."""
        plans, starts, carried = _forward(inputs)
        ctx.inputs, ctx.has_question_weights = inputs, question_weights is not None
        ctx.save_for_backward(sources, starts, *parameters)
        ctx.mark_non_differentiable(plans.entropy)
        if carried is not None:
            ctx.mark_non_differentiable(carried)
        return plans.rows, plans.mass, plans.entropy, carried

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Differentiate couplings, costs, then the embedding of sources and supports together."""
        sources, starts, *parameters = ctx.saved_tensors
        with full_precision(sources.device):
            to_sources, to_weights, to_parameters = _backward(
                ctx.inputs, sources, starts, MetricParameters(*parameters), *gradients[:2]
            )
        return to_sources, to_weights if ctx.has_question_weights else None, None, *to_parameters


def _forward(
    inputs: TransportInputs,
) -> tuple[PlanBuffers, Float[Tensor, "B regions K n"], Float[Tensor, "B K"] | None]:
    """Return the plans, the start of each last round, and the supports' relevance."""
    layout = inputs.layout
    plans = PlanBuffers.empty(layout, inputs.lifted.shape[1])
    starts = empty_rows_like(plans.rows)
    relevance: Tensor | None = None
    for run in inputs.runs():
        level = run.level
        if level.rounds == 1:
            _start(inputs, run, plans, starts)
            last = run
        else:
            transport_level(inputs, replace(run, relevance=None, rounds=level.rounds - 1), plans)
            here = slice(run.offset, run.offset + run.regions)
            starts[:, here].copy_(plans.rows[:, here])
            # one round that starts from the supports of the level's own regions
            own = torch.arange(here.start, here.stop, dtype=torch.int32, device=layout.device)
            last = replace(run, level=replace(level, rounds=1, parent_weight=1.0), parents=own)
        carried = transport_level(inputs, last, plans)
        relevance = relevance if carried is None else carried
    return plans, starts, relevance


def _start(inputs: TransportInputs, run: LevelRun, plans: PlanBuffers, starts: Float[Tensor, "B regions K n"]) -> None:
    """Write the start of a granularity that has one round."""
    level, parents = run.level, run.parents
    batch, regions = inputs.lifted.shape[:2]
    start_of_one_round[(batch * run.regions * inputs.layout.segments.count,)](
        plans.rows,
        inputs.metric.shift if parents is None else parents,
        inputs.layout.budgets,
        starts,
        regions,
        inputs.layout.supports,
        starts.stride(-2),
        *inputs.segment_counts,
        run.offset,
        run.regions,
        PARENT_WEIGHT=level.parent_weight,
        HAS_PARENT=parents is not None,
        **inputs.sizes,
    )


def _backward(
    inputs: TransportInputs,
    sources: Float[Tensor, "B regions N D"],
    starts: Float[Tensor, "B regions K n"],
    parameters: MetricParameters,
    grad_rows: Float[Tensor, "B regions K n"],
    grad_mass: Float[Tensor, "B regions K"],
) -> tuple[Tensor, Tensor, MetricParameters]:
    """Return the gradients of sources, question weights and parameters."""
    metric = inputs.metric
    pre = _lift(inputs, starts)
    hidden = activate(pre)
    parts = metric.second.apply(hidden)
    ends = metric.second.total(parts, hidden)
    grad_cost = _couple_backward(inputs, parts, hidden, grad_rows.contiguous(), grad_mass.contiguous())
    grad_ends, sums = _place_backward(inputs, ends, grad_cost)
    along, plain, bias = sums.unbind(1)  # of da x^, da and dy, one per video
    grad_active = grad_ends @ parameters.second.float()
    grad_lifted, grad_sources, first_bias = _lift_backward(inputs, grad_active, pre, starts)
    gradients = MetricParameters(
        first=grad_lifted.flatten(0, 2).T @ sources.flatten(0, 2),
        first_bias=first_bias,
        second=grad_ends.T @ F.gelu(pre),
        second_bias=bias.sum(0),
        gain=(inputs.question_weights * along).sum(0),
        shift=(inputs.question_weights * plain).sum(0),
    )
    to_weights = torch.addcmul(metric.scale * along, metric.shift, plain)
    return grad_sources @ parameters.first.float(), to_weights, gradients


def _lift(inputs: TransportInputs, starts: Float[Tensor, "B regions K n"]) -> Float[Tensor, "points C"]:
    """Return the lifted sources of all regions followed by the lifted supports."""
    layout, (batch, regions, frames, width) = inputs.layout, inputs.lifted.shape
    before = batch * regions * frames
    pre = inputs.lifted.new_empty((before + batch * regions * layout.supports, width))
    pre[:before].copy_(inputs.lifted.view(-1, width))
    sizes = {name: inputs.sizes[name] for name in ("MB", "NB")}
    lift_supports[(inputs.problems, triton.cdiv(layout.slots, TILE))](
        inputs.lifted,
        starts,
        layout.budgets,
        inputs.metric.first.bias,
        pre[before:],
        regions,
        frames,
        layout.supports,
        starts.stride(-2),
        *inputs.segment_counts,
        width,
        RB=TILE,
        CB=block(width),
        **sizes,
        num_warps=8,
    )
    return pre


def _couple_backward(
    inputs: TransportInputs,
    parts: Float[Tensor, "points 2C"],
    hidden: SplitRows,
    grad_rows: Float[Tensor, "B regions K n"],
    grad_mass: Float[Tensor, "B regions K"],
) -> Float[Tensor, "B*regions*K n"]:
    """Return the gradient of the costs, which are computed again, from those of rows and masses."""
    layout, sizes, (batch, regions, _, _) = inputs.layout, inputs.sizes, inputs.lifted.shape
    cost, rest, grad_cost = parts.new_empty((3, batch * regions * layout.supports, sizes["NB"]))
    _compute_costs(inputs, parts, hidden, (cost, rest), grad_rows.stride(-2))
    updates = [damping(level.epsilon, inputs.config) for level in inputs.levels]
    history = parts.new_empty((inputs.problems, inputs.config.updates, sizes["NB"] + sizes["KB"]))
    couple_backward[(inputs.problems,)](
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
        *inputs.segment_counts,
        OFFSETS=inputs.offsets,
        EPSILONS=tuple(level.epsilon for level in inputs.levels),
        SOURCE_KAPPAS=tuple(each["KAPPA_S"] for each in updates),
        TARGET_KAPPAS=tuple(each["KAPPA_T"] for each in updates),
        LEVELS=len(updates),
        COST_BOUND=inputs.config.cost_bound,
        STABILIZER=inputs.config.stabilizer,
        UPDATES=inputs.config.updates,
        **sizes,
        num_warps=warps_for(sizes["KB"], sizes["NB"]),
    )
    return grad_cost


def _compute_costs(
    inputs: TransportInputs,
    parts: Float[Tensor, "points 2C"],
    hidden: SplitRows,
    costs: tuple[Float[Tensor, "B*regions*K n"], Float[Tensor, "B*regions*K n"]],
    pitch: int,
) -> None:
    """Write the costs of all granularities' last rounds, and their remainders beyond float32."""
    layout, metric, (batch, regions, frames, width) = inputs.layout, inputs.metric, inputs.lifted.shape
    support_costs[(inputs.problems, triton.cdiv(layout.slots, TILE))](
        parts[batch * regions * frames :],
        hidden.powers[batch * regions * frames :],
        metric.second.largest,
        metric.second.bias,
        inputs.placed,
        layout.budgets,
        metric.scale,
        metric.shift,
        inputs.question_weights,
        *costs,
        regions,
        frames,
        layout.supports,
        pitch,
        *inputs.segment_counts,
        width,
        0,
        regions,
        PLACE_EPS=metric.eps,
        RB=TILE,
        CB=block(width),
        MB=inputs.sizes["MB"],
        NB=inputs.sizes["NB"],
        num_warps=8,
    )


def _place_backward(
    inputs: TransportInputs, ends: Float[Tensor, "points C"], grad_cost: Float[Tensor, "B*regions*K n"]
) -> tuple[Float[Tensor, "points C"], Float[Tensor, "B 3 C"]]:
    """Return the gradient of the last LayerNorm's input, and each video's sums over points."""
    layout, metric, (batch, regions, frames, width) = inputs.layout, inputs.metric, inputs.lifted.shape
    before = batch * regions * frames
    grad_ends = torch.empty_like(ends)
    tiles = [triton.cdiv(count, TILE) for count in (layout.segments.longest, layout.slots)]
    sums = [ends.new_empty((batch, regions * layout.segments.count * each, 3, width)) for each in tiles]
    sides = (slice(before), slice(before, None))
    for of_sources, own, other, here in zip((True, False), sides, sides[::-1], (0, 1), strict=True):
        place_backward[(inputs.problems, tiles[here])](
            ends[own],
            ends[other],
            grad_cost,
            layout.budgets,
            metric.scale,
            inputs.question_weights,
            grad_ends[own],
            sums[here],
            regions,
            frames,
            layout.supports,
            *inputs.segment_counts,
            width,
            SOURCES=of_sources,
            EPS=metric.eps,
            MB=inputs.sizes["MB"],
            NB=inputs.sizes["NB"],
            OB=OTHERS,
            RB=TILE,
            CB=block(width),
            num_warps=8,
            num_stages=1,
        )
    return grad_ends, sums[0].sum(1) + sums[1].sum(1)


def _lift_backward(
    inputs: TransportInputs,
    grad_active: Float[Tensor, "points C"],
    pre: Float[Tensor, "points C"],
    starts: Float[Tensor, "B regions K n"],
) -> tuple[Float[Tensor, "B regions N C"], Float[Tensor, "B regions N C"], Float[Tensor, "C"]]:
    """Return the gradients of the lifted sources for W1 and for the sources, and of W1's bias."""
    layout, (_, regions, frames, width) = inputs.layout, inputs.lifted.shape
    grad_lifted, grad_sources = torch.empty_like(inputs.lifted), torch.empty_like(inputs.lifted)
    sums = pre.new_empty((inputs.problems, width))
    lift_backward[(inputs.problems, triton.cdiv(width, CHANNELS))](
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
        *inputs.segment_counts,
        width,
        MIXED=tuple(float(level.rounds == 1) for level in inputs.levels),
        OFFSETS=inputs.offsets,
        LEVELS=len(inputs.levels),
        CB=CHANNELS,
        **inputs.sizes,
        num_warps=8,
    )
    return grad_lifted, grad_sources, sums.sum(0)
