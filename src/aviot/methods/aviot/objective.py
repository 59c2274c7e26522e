"""The compression objective of the supplement, computed from the records of the executed stages."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.config import ObjectiveConfig
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.level import LevelPlan
from aviot.methods.aviot.numerics import cosine, squared_distances, working_dtype
from aviot.methods.aviot.stage import Stage
from aviot.ot import plogp

_FRAMES_PER_CHUNK = 16


class ObjectiveTerms(NamedTuple):
    """The unweighted terms of the objective, one value per video, averaged over stages."""

    temporal: Tensor  # distortion of the global supports
    regional: Tensor  # distortion of the regional supports
    continuity: Tensor  # divergence of neighbouring regions that look alike
    variation: Tensor  # spatial variation of the gate where motion is similar
    balance: Tensor  # mean shares of the granularities outside their bounds
    entropy: Tensor  # gate entropy below its floor

    def total(self, config: ObjectiveConfig) -> Tensor:
        """Return the weighted sum (eq:supp_stage_objective)."""
        return (
            self.temporal
            + config.regional_weight * self.regional
            + config.continuity_weight * self.continuity
            + config.variation_weight * self.variation
            + config.balance_weight * self.balance
            + config.entropy_weight * self.entropy
        )


def zero_terms(like: Float[Tensor, "B ..."]) -> ObjectiveTerms:
    """Return zero terms, for a video with nothing to compress; they have a gradient, so that it can be trained on."""
    zero = 0 * like.flatten(1)[:, 0].to(working_dtype(like.dtype))
    return ObjectiveTerms(*(zero for _ in ObjectiveTerms._fields))


class ObjectiveBackend(Protocol):
    """The parts of the objective with one implementation in plain torch and one by kernels."""

    def patch_motion(self, u: Float[Tensor, "B T S D"]) -> Float[Tensor, "B S"]:
        """Return the mean change of every patch from frame to frame."""
        ...

    def stage_terms(
        self, stages: Sequence[Stage], change: Float[Tensor, "B S"], config: ObjectiveConfig
    ) -> Float[Tensor, "stages 6 B"]:
        """Return `ObjectiveTerms` of every stage; `change` is the patches' motion."""
        ...


class TorchObjective:
    """The objective in plain torch."""

    def patch_motion(self, u: Float[Tensor, "B T S D"]) -> Float[Tensor, "B S"]:
        """Return the mean change of every patch from frame to frame."""
        return patch_motion(u)

    def stage_terms(
        self, stages: Sequence[Stage], change: Float[Tensor, "B S"], config: ObjectiveConfig
    ) -> Float[Tensor, "stages 6 B"]:
        """Return `ObjectiveTerms` of every stage; `change` is the patches' motion."""
        return torch.stack([torch.stack(_stage_terms(stage, change, config)) for stage in stages])


def objective_terms(
    backend: ObjectiveBackend,
    stages: Sequence[Stage],
    motion: Float[Tensor, "B T S D"],
    config: ObjectiveConfig,
    finite: FiniteCheck,
) -> ObjectiveTerms:
    """Return every term, averaged over the executed stages (eq:supp_total_objective)."""
    change = backend.patch_motion(motion)
    finite.enter("")
    finite.require(change, "the motion features are")
    terms = backend.stage_terms(stages, change, config)
    numbered = product(range(1, len(stages) + 1), ObjectiveTerms._fields)
    names = [f"stage {number} of the objective: the {name} term is" for number, name in numbered]
    finite.require_each(terms.flatten(0, 1), names)
    return ObjectiveTerms(*terms.mean(0))


def _stage_terms(stage: Stage, change: Float[Tensor, "B S"], config: ObjectiveConfig) -> ObjectiveTerms:
    zero = zero_terms(stage.gates).temporal
    temporal = distortion(stage.plans[0]).sum((-2, -1)).to(zero.dtype)
    if len(stage.plans) == 1:
        return ObjectiveTerms(temporal, zero, zero, zero, zero, zero)
    regional = [distortion(plan).mean((-2, -1)).to(zero.dtype) for plan in stage.plans[1:]]
    smooth = [
        continuity(plan, appearance.to(plan.conditional.dtype), config.continuity_scale).to(zero.dtype)
        for plan, appearance in zip(stage.plans[1:], stage.appearance[1:], strict=True)
    ]
    return ObjectiveTerms(
        temporal=temporal,
        regional=torch.stack(regional).mean(0),
        continuity=torch.stack(smooth).mean(0),
        variation=gate_variation(
            stage.gates, change.to(zero.dtype), stage.plans[0].partition.grid, config.motion_scale
        ),
        balance=gate_balance(stage.gates, config),
        entropy=gate_entropy_shortfall(stage.gates, config.entropy_floor),
    )


def distortion(plan: LevelPlan) -> Float[Tensor, "B R M"]:
    """Return sum_ij P_ij ||x_i - z_j||^2 / D over sum_ij P_ij, per segment (eq:supp_temporal_distortion).

    Sources carry no gradient, supports and coupling do; an identity segment has no distortion.
    """
    layout = plan.layout
    sources = layout.segments.split(plan.sources.detach())
    squared = squared_distances(layout.pad(plan.supports), sources) / sources.shape[-1]  # [B,R,M,k,n]
    flow = layout.pad(plan.rows * plan.mass[..., None]) * layout.slot_mask[:, None, ..., None]
    mean = (flow * squared).sum((-2, -1)) / flow.sum((-2, -1))
    return torch.where(layout.identity[:, None], 0.0, mean)


def continuity(plan: LevelPlan, appearance: Float[Tensor, "B R D"], scale: float) -> Float[Tensor, "B"]:
    """Return the divergence (Jensen-Shannon, nats) of neighbouring regions' plans, weighted by likeness.

    Likeness w_rr' = exp(-(1 - cos) / scale) of the regions' mean appearance, without gradient; eq:supp_continuity,
    eq:supp_boundary_weight.
    """
    likeness = over_edges(lambda a, b: torch.exp((cosine(a, b) - 1) / scale), plan.partition.cells, appearance)
    negentropy = plogp(plan.conditional).sum(-1)  # [B,R,K]
    of_mixture = over_edges(lambda a, b: plogp((a + b) / 2).sum(-1), plan.partition.cells, plan.conditional)
    mean_of_pair = over_edges(lambda a, b: (a + b) / 2, plan.partition.cells, negentropy)
    return weighted_average(likeness, (mean_of_pair - of_mixture).mean(-1))


def gate_variation(
    gates: Float[Tensor, "B S K L"], change: Float[Tensor, "B S"], grid: tuple[int, int], scale: float
) -> Float[Tensor, "B"]:
    """Return |gamma_s - gamma_s'| of neighbouring patches, weighted by likeness of motion (eq:supp_gate_tv)."""
    alike = over_edges(lambda a, b: torch.exp(-(a - b).abs() / scale), grid, change)
    step = over_edges(lambda a, b: (a - b).abs(), grid, gates)
    return weighted_average(alike, step.mean((-2, -1)))


def gate_balance(gates: Float[Tensor, "B S K L"], config: ObjectiveConfig) -> Float[Tensor, "B"]:
    """Return the squared excess of mean shares: global over its ceiling, others under theirs (eq:supp_gate_balance)."""
    return imbalance(gates.mean((1, 2)), config)


def imbalance(share: Float[Tensor, "*B L"], config: ObjectiveConfig) -> Float[Tensor, "*B"]:
    """Return the gate balance of mean shares."""
    whole, regional = share.split([1, share.shape[-1] - 1], -1)
    excess = torch.cat((whole - config.global_ceiling, config.regional_floor - regional), -1)
    return excess.clamp_min(0).square().mean(-1)


def gate_entropy_shortfall(gates: Float[Tensor, "B S K L"], floor: float) -> Float[Tensor, "B"]:
    """Return [floor - H]_+^2 with H the mean gate entropy over log L (eq:supp_gate_entropy)."""
    return shortfall(plogp(gates).sum(-1).mean((1, 2)), gates.shape[-1], floor)


def shortfall(negentropy: Float[Tensor, "*B"], levels: int, floor: float) -> Float[Tensor, "*B"]:
    """Return the entropy shortfall of the mean of sum gamma log gamma."""
    return (floor + negentropy / math.log(levels)).clamp_min(0).square()


@torch.no_grad()
def patch_motion(u: Float[Tensor, "B T S D"]) -> Float[Tensor, "B S"]:
    """Return d_s, the mean cosine distance between successive frames at each patch (eq:supp_patch_motion).

    In chunks of frames: the cosine's temporaries are several times the size of its inputs.
    """
    total = u.new_zeros((u.shape[0], u.shape[2]), dtype=working_dtype(u.dtype))
    for first in range(0, u.shape[1] - 1, _FRAMES_PER_CHUNK):
        frames = u[:, first : first + _FRAMES_PER_CHUNK + 1].to(total.dtype)
        total += (1 - cosine(frames[:, 1:], frames[:, :-1])).sum(1)
    return total / (u.shape[1] - 1)


def over_edges(
    pairwise: Callable[[Tensor, Tensor], Tensor], cells: tuple[int, int], values: Float[Tensor, "B R ..."]
) -> Float[Tensor, "B E ..."]:
    """Apply a function to every horizontally and vertically adjacent pair of a row-major grid of cells."""
    lattice = values.unflatten(1, cells)
    down = pairwise(lattice[:, :-1], lattice[:, 1:])
    right = pairwise(lattice[:, :, :-1], lattice[:, :, 1:])
    return torch.cat((down.flatten(1, 2), right.flatten(1, 2)), 1)


def weighted_average(weights: Float[Tensor, "B E"], values: Float[Tensor, "B E"]) -> Float[Tensor, "B"]:
    """Return the weighted average over edges; zero where there is no edge."""
    if weights.shape[-1] == 0:
        return values.new_zeros(len(values))
    return (weights * values).sum(-1) / weights.sum(-1)
