"""A stage by kernels: a dozen launches from features to fused features, without a host synchronisation.

With gradients the same kernels run; means, plans, gates and fusion have backward kernels of their own, and plain torch
differentiates the steps in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from aviot.config import CompressorConfig
from aviot.methods.aviot import schedule
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.fusion import introduce_regions
from aviot.methods.aviot.kernels.allocation import AllocationSettings, allocate
from aviot.methods.aviot.kernels.branch_moments import branch_moments
from aviot.methods.aviot.kernels.common import PlanBuffers, RegionTables, SideStream, region_offsets, region_tables
from aviot.methods.aviot.kernels.embedding import MetricWeights, embed_sources
from aviot.methods.aviot.kernels.fusion import FusedFeatures
from aviot.methods.aviot.kernels.gate import GateInputs, Gates
from aviot.methods.aviot.kernels.gram import GramMatrices
from aviot.methods.aviot.kernels.objective import AllRegions, KernelObjective, KernelStage
from aviot.methods.aviot.kernels.region_means import RegionMeans, region_means
from aviot.methods.aviot.kernels.transport import TransportInputs, TransportPlans, transport_level
from aviot.methods.aviot.level import LevelPlan
from aviot.methods.aviot.objective import ObjectiveBackend, TorchObjective
from aviot.methods.aviot.regions import DESCRIPTOR_EPS, Partition, descriptors
from aviot.methods.aviot.segments import Layout
from aviot.methods.aviot.stage import Conditioning, Stage, StageContext, StageModules, StageOutput, partitions_of


@dataclass(frozen=True)
class KernelWeights:
    """The learned weights in the form that kernels take, built once per compression."""

    metric: MetricWeights
    position: Float[Tensor, "regions D"]  # of every granularity's regions; zero for the whole frame

    @classmethod
    @torch.no_grad()
    def of(cls, config: CompressorConfig, modules: StageModules) -> "KernelWeights":
        """Convert the modules' weights."""
        codes = tables_of(config, modules.region_position.weight.device).codes
        return cls(MetricWeights.of(modules.metric), modules.region_position(codes))


def tables_of(config: CompressorConfig, device: torch.device) -> RegionTables:
    """Return the tables of a config's partitions."""
    return region_tables(partitions_of(config), config.position.region_bands, device)


@dataclass(frozen=True)
class PendingGram:
    """Gram matrices that a side stream computes; None where no gate needs them."""

    gram: GramMatrices | None
    side_stream: SideStream

    def wait(self) -> GramMatrices | None:
        """Make the main stream wait for them, and return them."""
        self.side_stream.wait()
        return self.gram


@dataclass(frozen=True)
class KernelBackend:
    """Triton kernels: one CUDA device, float32 or 16 bits, sizes within `backend.kernels_serve`."""

    config: CompressorConfig
    modules: StageModules
    finite: FiniteCheck
    weights: KernelWeights
    recording: bool  # gradients are recorded

    @classmethod
    def build(cls, config: CompressorConfig, modules: StageModules, finite: FiniteCheck) -> "KernelBackend":
        """Return the backend of one compression, in the current gradient mode."""
        return cls(config, modules, finite, KernelWeights.of(config, modules), torch.is_grad_enabled())

    @property
    def objective(self) -> ObjectiveBackend:
        """The objective by kernels, which need a stage's gradients; without them in plain torch."""
        return KernelObjective() if self.recording else TorchObjective()

    def prepare(self, x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B N S D"]:
        """Return contiguous features: kernels take no strides."""
        return x.contiguous()

    def run_stage(self, context: StageContext) -> StageOutput:
        """Run one stage."""
        return self._run_recorded(context) if self.recording else self._run(context)

    @torch.no_grad()
    def _run(self, context: StageContext) -> StageOutput:
        """Run one stage without gradients."""
        means = region_means(partitions_of(self.config), context.x)
        self.finite.require(means[:, 0], "the features x are")
        embedded = self._embed(means, context.conditioning)
        pending = self._start_gram(context)
        transport = self._transport_inputs(embedded, context)
        buffers = PlanBuffers.empty(transport.layout, means.shape[1])
        relevance: Tensor | None = None
        for run in transport.runs():
            carried = transport_level(transport, run, buffers)
            relevance = relevance if carried is None else carried
        features, stage = self._fuse(context, means, buffers, transport.layout, pending)
        return StageOutput(features, stage, replace(context.conditioning, relevance=relevance))

    def _run_recorded(self, context: StageContext) -> StageOutput:
        """Run one stage with gradients, by the same kernels."""
        means, x = RegionMeans.apply(context.x, partitions_of(self.config))
        context = replace(context, x=x)
        self.finite.require(means[:, 0], "the features x are")
        with torch.no_grad():
            transport = self._transport_inputs(self._embed(means.detach(), context.conditioning), context)
        pending = self._start_gram(context)
        sources = self._describe(means)
        weights, parameters = context.conditioning.weights, self.modules.metric.parts
        rows, mass, entropy, relevance = TransportPlans.apply(sources, weights, transport, *parameters)
        buffers = PlanBuffers(rows, mass, entropy)
        features, stage = self._fuse(context, means, buffers, transport.layout, pending)
        stage = KernelStage(**vars(stage), all_regions=AllRegions(rows, mass, sources, means))
        return StageOutput(features, stage, replace(context.conditioning, relevance=relevance))

    def _embed(
        self, means: Float[Tensor, "B regions N D"], conditioning: Conditioning
    ) -> tuple[Float[Tensor, "B C"], Float[Tensor, "B regions N C"], Float[Tensor, "B regions N C"]]:
        """Return the question's weights, and the sources before and after the transport space's embedding."""
        shift = self.weights.metric.shift
        if conditioning.weights is None:
            weights = shift.new_ones((len(means), len(shift)))
        else:
            weights = conditioning.weights.detach().float().contiguous()
        return weights, *embed_sources(self.weights.metric, weights, means, self.weights.position)

    @torch.no_grad()
    def _start_gram(self, context: StageContext) -> PendingGram:
        """Launch the sources' Gram matrices on a side stream, beside the transport."""
        x, question = context.x, context.conditioning.question
        side_stream = SideStream(x.device)
        if len(self.config.active_levels) == 1 or self.config.fusion == "equal":
            return PendingGram(None, side_stream)
        question = x.new_zeros((len(x), x.shape[-1])) if question is None else question.to(x.dtype).contiguous()
        groups = tables_of(self.config, x.device).groups
        gram = GramMatrices.empty(question, groups, context.segments(self.config))
        with side_stream:
            gram.fill(x)
        return PendingGram(gram, side_stream)

    def _transport_inputs(self, embedded: tuple[Tensor, Tensor, Tensor], context: StageContext) -> TransportInputs:
        """Allocate the budgets and gather the inputs of the transport."""
        weights, lifted, placed = embedded
        return TransportInputs(
            levels=self.config.active_levels,
            config=self.config.transport,
            metric=self.weights.metric,
            question_weights=weights,
            lifted=lifted,
            placed=placed,
            layout=self._lay_out(placed, context),
            offsets=tuple(region_offsets(partitions_of(self.config))),
            parents=tables_of(self.config, placed.device).parents,
            relevance=context.conditioning.relevance,
        )

    def _lay_out(self, placed: Float[Tensor, "B regions N C"], context: StageContext) -> Layout:
        """Decide every segment's budget from the pilot's response and the question's relevance."""
        config, segments = self.config, context.segments(self.config)
        settings = AllocationSettings(
            epsilon=config.levels[0].epsilon,
            transport=config.transport,
            pilot=config.pilot,
            relevance_weight=schedule.relevance_weight(context.progress, config.allocation),
            temperature=schedule.allocation_temperature(context.progress, config.allocation),
        )
        budgets = allocate(placed, context.conditioning.relevance, segments, context.supports, settings)
        return Layout(segments, context.supports, budgets)

    def _describe(self, means: Float[Tensor, "B regions N D"]) -> Float[Tensor, "B regions N D"]:
        """Return every region's descriptors, with their gradients: `regions.descriptors` of all granularities."""
        if means.shape[1] == 1:
            return means
        frames, regional = means.split([1, means.shape[1] - 1], 1)
        normalised = F.layer_norm(regional, means.shape[-1:], eps=DESCRIPTOR_EPS)
        codes = tables_of(self.config, means.device).codes
        return torch.cat((frames, normalised + self.modules.region_position(codes[1:])[:, None]), 1)

    def _fuse(
        self,
        context: StageContext,
        means: Float[Tensor, "B regions N D"],
        buffers: PlanBuffers,
        layout: Layout,
        pending: PendingGram,
    ) -> tuple[Float[Tensor, "B K S D"], Stage]:
        """Return the fused features and the stage's record."""
        self.finite.require(buffers.entropy, "the transport plans are")
        plans, partitions = self._plans(means, buffers, layout), partitions_of(self.config)
        gates = self._gates(context, buffers, layout, pending.wait())
        regions = tables_of(self.config, means.device).regions
        mixed = introduce_regions(gates, context.progress)
        features = FusedFeatures.apply(context.x, buffers.rows, mixed, partitions, regions, layout)
        self.finite.require(gates, "the fusion weights are")
        applied = introduce_regions(gates, context.progress)
        return features, Stage(layout, plans, _split(means, partitions), gates, applied)

    def _gates(
        self, context: StageContext, buffers: PlanBuffers, layout: Layout, gram: GramMatrices | None
    ) -> Float[Tensor, "B S K L"]:
        """Return gamma as the gate predicts it; equal shares where no gate decides."""
        x, rows, question, gate = context.x, buffers.rows, context.conditioning.question, self.modules.gate
        tables = tables_of(self.config, x.device)
        levels = len(tables.regions)
        if gram is None:
            return rows.new_full((len(x), self.config.patches, layout.supports, levels), 1 / levels)
        question = None if question is None else question.float().contiguous()
        with torch.no_grad():
            moments = branch_moments(gram, rows.detach(), tables, layout, exact=x.dtype == torch.float32)
        inputs = GateInputs(moments, buffers.entropy, tables.regions, x.shape[-1], question)
        return Gates.apply(inputs, gate, self.config.gate, *gate.parameters())

    def _plans(
        self, means: Float[Tensor, "B regions N D"], buffers: PlanBuffers, layout: Layout
    ) -> tuple[LevelPlan, ...]:
        """Return each granularity's plan as a view of the buffers."""
        partitions, bands = partitions_of(self.config), self.config.position.region_bands
        parts = (_split(values, partitions) for values in (buffers.rows, buffers.mass, means))
        return tuple(
            LevelPlan(
                name=level.name,
                partition=partition,
                layout=layout,
                rows=rows,
                mass=mass,
                stabilizer=self.config.transport.stabilizer,
                describe=partial(descriptors, mean, partition, self.modules.region_position, bands),
            )
            for level, partition, rows, mass, mean in zip(self.config.active_levels, partitions, *parts, strict=True)
        )


def _split(values: Tensor, partitions: Sequence[Partition]) -> tuple[Tensor, ...]:
    """Return each granularity's part of values that hold all regions one after the other."""
    return tuple(values.split([each.count for each in partitions], 1))
