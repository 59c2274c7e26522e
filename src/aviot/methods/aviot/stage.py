"""One progressive stage: N sources in, K supports out, and the record of how (Algorithm 1 of the supplement)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.config import CompressorConfig
from aviot.methods.aviot import schedule
from aviot.methods.aviot.allocation import allocation_probabilities, integer_budgets, pilot_response
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.fusion import combine, fuse, introduce_regions
from aviot.methods.aviot.level import LevelPlan, finish, start_rows, transport
from aviot.methods.aviot.metric import Linear, Metric
from aviot.methods.aviot.provenance import ALL
from aviot.methods.aviot.regions import Partition, descriptors, region_means
from aviot.methods.aviot.segments import Layout, Segments


@dataclass(frozen=True)
class Conditioning:
    """The conditioning on the question; all None without one."""

    question: Float[Tensor, "B D"] | None = None  # q_v
    weights: Float[Tensor, "B C"] | None = None  # of the transport cost
    relevance: Float[Tensor, "B N"] | None = None  # of each source of this stage

    def carried_by(self, stage: "Stage") -> "Conditioning":
        """Return the conditioning of the next stage: its sources' relevance is rho mixed by the global plan."""
        if self.relevance is None:
            return self
        plan = stage.plans[0].conditional[:, 0].detach().to(self.relevance.dtype)
        # rows whose sums miss one by rounding would turn a constant relevance into a signal
        mixed = (plan @ self.relevance[..., None])[..., 0] / plan.sum(-1)
        return replace(self, relevance=mixed)


@dataclass(frozen=True)
class Stage:
    """The record of one executed stage, from which provenance and objective are computed."""

    layout: Layout
    plans: tuple[LevelPlan, ...]  # one per granularity, coarse to fine
    means: tuple[Float[Tensor, "B R N D"], ...]  # of the regions, one per granularity
    gates: Float[Tensor, "B S K L"]  # gamma as the gate predicts it
    applied: Float[Tensor, "B S K L"]  # gamma as it was applied, warm-up included

    @property
    def coefficients(self) -> Float[Tensor, "B S K N"]:
        """B, the mixture of every output."""
        return self.mixture()

    def mixture(self, patches: slice = ALL, videos: slice = ALL) -> Float[Tensor, "b s K N"]:
        """Return B at some positions, for some videos of the batch."""
        shares = self.applied[videos, patches]
        rows = [plan.rows[videos, plan.region_of_patch[patches]].to(shares.dtype) for plan in self.plans]
        layout = replace(self.layout, budgets=self.layout.budgets[videos])
        return layout.dense(combine(torch.stack(rows, 2), shares, layout.unchanged))

    @property
    def appearance(self) -> tuple[Float[Tensor, "B R D"], ...]:
        """Region means over time, one per granularity, no gradient."""
        return tuple(mean.detach().mean(2) for mean in self.means)

    @property
    def budgets(self) -> Int[Tensor, "B M"]:
        """Supports of each segment."""
        return self.layout.budgets

    @cached_property
    def shares(self) -> dict[str, Float[Tensor, "B"]]:
        """Mean share of each granularity in the outputs; no gradient."""
        means = self.applied.detach().mean((1, 2)).unbind(-1)
        return dict(zip((plan.name for plan in self.plans), means, strict=True))

    def branch(
        self, name: str, patches: slice = ALL, videos: slice = ALL
    ) -> tuple[Float[Tensor, "b s K N"], Float[Tensor, "b s K"]]:
        """Return one granularity's distributions over sources, and its share of each output."""
        names = [plan.name for plan in self.plans]
        if name not in names:
            raise ValueError(f"branch must be one of {', '.join(map(repr, names))}, got {name!r}")
        level = names.index(name)
        plan, share = self.plans[level], self.applied[videos, patches, :, level]
        return plan.conditional[videos, plan.region_of_patch[patches]].to(share.dtype), share


@dataclass(frozen=True)
class StageModules:
    """The learned modules, shared by all stages."""

    metric: Metric
    region_position: Linear
    gate: nn.Sequential


@dataclass(frozen=True)
class StageContext:
    """The inputs of one stage."""

    x: Float[Tensor, "B N S D"]
    conditioning: Conditioning
    supports: int  # K
    progress: float  # of the warm-ups, from 0 to 1
    reuse_x: bool = False  # x is an earlier stage's output, which a stage without a gradient may overwrite

    def segments(self, config: CompressorConfig) -> Segments:
        """Return the temporal segments of the sources."""
        return Segments.of(self.x.shape[1], self.supports, config.segments)


class StageOutput(NamedTuple):
    """The results of one stage."""

    features: Float[Tensor, "B K S D"]
    stage: Stage
    conditioning: Conditioning  # for the next stage


def partitions_of(config: CompressorConfig) -> tuple[Partition, ...]:
    """Return the granularities' partitions, coarse to fine."""
    return tuple(Partition(config.grid, level.regions) for level in config.active_levels)


def run_stage(
    config: CompressorConfig, modules: StageModules, context: StageContext, finite: FiniteCheck
) -> StageOutput:
    """Split, pilot, budgets, then transport from the whole frame to the finest regions, and fuse: in plain torch.

    Frame descriptors keep the features' magnitude (regional ones are normalised), and at large ones the gradient of
    their distortion is the small difference of terms a million times its size: this level is solved in float64.
    """
    x, conditioning, progress = context.x, context.conditioning, context.progress
    partitions = partitions_of(config)
    frames, *regional = region_means(partitions, x)
    finite.require(frames, "the features x are")  # a patch that is not finite gives a mean that is not
    means = (frames.double(), *regional)
    layout = _lay_out(config, modules.metric, means[0], context, finite)
    plans = solve_levels(config, modules, partitions, means, conditioning, layout, finite)
    in_place = context.reuse_x and not torch.is_grad_enabled()
    features, gates = fuse(x, plans, layout, modules.gate, config, conditioning.question, progress, in_place=in_place)
    finite.require(gates, "the fusion weights are")
    stage = Stage(layout, plans, means, gates, introduce_regions(gates, progress))
    return StageOutput(features, stage, conditioning.carried_by(stage))


@torch.no_grad()
def _lay_out(
    config: CompressorConfig,
    metric: Metric,
    frames: Float[Tensor, "B 1 N D"],
    context: StageContext,
    finite: FiniteCheck,
) -> Layout:
    """Decide every segment's budget from the pilot's response and the question's relevance; no gradient."""
    segments, conditioning, supports = context.segments(config), context.conditioning, context.supports
    embedded = metric.place(metric.lift(frames), conditioning.weights)[:, 0]
    response = pilot_response(embedded, segments, config.levels[0].epsilon, config.transport, config.pilot)
    relevance = None if conditioning.relevance is None else segments.mean(conditioning.relevance.double())
    probabilities = allocation_probabilities(
        response,
        relevance,
        schedule.relevance_weight(context.progress, config.allocation),
        schedule.allocation_temperature(context.progress, config.allocation),
    )
    finite.require(probabilities, "the allocation probabilities are")
    return Layout(segments, supports, integer_budgets(probabilities, segments.sizes(frames.device), supports))


def solve_levels(
    config: CompressorConfig,
    modules: StageModules,
    partitions: tuple[Partition, ...],
    means: tuple[Tensor, ...],
    conditioning: Conditioning,
    layout: Layout,
    finite: FiniteCheck,
) -> tuple[LevelPlan, ...]:
    """Solve every granularity's transport, coarse to fine."""
    plans: list[LevelPlan] = []
    for depth, (level, partition, mean) in enumerate(zip(config.active_levels, partitions, means, strict=True)):
        sources = descriptors(mean, partition, modules.region_position, config.position.region_bands)
        parents = None if depth == 0 else partition.parents(partitions[depth - 1], mean.device)
        parent = None if parents is None else plans[-1].rows.index_select(1, parents)
        start = start_rows(level, layout, parent, sources.dtype)
        coupling = transport(level, config.transport, modules.metric, conditioning.weights, sources, start, layout)
        plan = finish(level, config.transport, partition, sources, coupling, layout)
        finite.require(plan.rows, f"the {level.name} plan is")
        plans.append(plan)
    return tuple(plans)
