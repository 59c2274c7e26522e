"""A stage by kernels: everything between features and fused features in a dozen launches, nothing read by the host.

With gradients (`run_recorded_stage`) everything that has none is done by the same kernels. Means, fusion and solver
have reverse passes of their own, and plain torch differentiates what is between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.compressor import schedule
from aviot.compressor.finite import FiniteCheck
from aviot.compressor.fusion import introduce_regions
from aviot.compressor.kernels.allocation import allocate
from aviot.compressor.kernels.aside import Aside
from aviot.compressor.kernels.embedding import MetricWeights, embed_sources
from aviot.compressor.kernels.features import fuse, fuse_rows, gate_decides, like_features
from aviot.compressor.kernels.features import region_means as recorded_means
from aviot.compressor.kernels.means import region_means
from aviot.compressor.kernels.products import Products
from aviot.compressor.kernels.tables import offsets_of, tables
from aviot.compressor.kernels.transport import PlanRecord, transport_level
from aviot.compressor.layout import Layout
from aviot.compressor.level import Plan
from aviot.compressor.regions import Partition, descriptors
from aviot.compressor.segments import Segments
from aviot.compressor.stage import Conditioning, Stage, StageModules, partitions_of, solve_levels
from aviot.config import CompressorConfig


@dataclass(frozen=True)
class StageWeights:
    """The learned parts as kernels take them, made once a compression."""

    metric: MetricWeights
    position: Float[Tensor, "regions D"]  # of every granularity's regions; zero for the whole frame

    @classmethod
    @torch.no_grad()
    def of(cls, config: CompressorConfig, modules: StageModules) -> "StageWeights":
        """Read off the modules."""
        known = tables(partitions_of(config), config.position.region_bands, modules.region_position.weight.device)
        return cls(MetricWeights.of(modules.metric), modules.region_position(known.codes))


@torch.no_grad()
def run_stage(
    weights: StageWeights,
    config: CompressorConfig,
    modules: StageModules,
    x: Float[Tensor, "B N S D"],
    conditioning: Conditioning,
    supports: int,
    progress: float,
    finite: FiniteCheck,
) -> tuple[Float[Tensor, "B K S D"], Stage, Conditioning]:
    """What `aviot.compressor.stage.run_stage` does, without gradient."""
    partitions = partitions_of(config)
    known = tables(partitions, config.position.region_bands, x.device)
    offsets = offsets_of(partitions)
    means = region_means(partitions, x)
    finite.require(means[:, 0], "the features x are")
    weigh = _question_weights(weights, conditioning, len(x))
    lifted, placed = embed_sources(weights.metric, weigh, means, weights.position)
    segments, question = Segments.of(x.shape[1], supports, config.segments), like_features(conditioning.question, x)
    products = Products.empty(len(x), known.groups, segments) if gate_decides(config) else None
    aside = Aside(x.device)
    if products is not None:
        with aside:
            products.fill(x, question, known.groups, segments)
    layout = _lay_out(config, placed, conditioning, supports, progress)
    record = PlanRecord.empty(layout, means.shape[1])
    carried: Tensor | None = None
    for level, offset, parents in zip(config.active_levels, offsets, known.parents, strict=True):
        heard = conditioning.relevance if parents is None else None
        found = transport_level(
            level,
            config.transport,
            weights.metric,
            weigh,
            lifted,
            placed,
            layout,
            record,
            offset=offset,
            parents=parents,
            relevance=heard,
        )
        carried = carried if found is None else found
    finite.require(record.entropy, "the transport plans are")
    plans = _plans(config, modules, partitions, means, record, layout)
    aside.wait()
    features, gates = fuse_rows(
        x,
        record.rows,
        record.entropy,
        products,
        known,
        layout,
        modules.gate,
        config,
        conditioning.question,
        progress,
    )
    finite.require(gates, "the fusion weights are")
    stage = Stage(layout, plans, tuple(_split(means, partitions)), gates, introduce_regions(gates, progress))
    return features, stage, replace(conditioning, relevance=carried)


def run_recorded_stage(
    weights: StageWeights,
    config: CompressorConfig,
    modules: StageModules,
    x: Float[Tensor, "B N S D"],
    conditioning: Conditioning,
    supports: int,
    progress: float,
    finite: FiniteCheck,
) -> tuple[Float[Tensor, "B K S D"], Stage, Conditioning]:
    """The same with gradients: the last round of every granularity is torch's, in its precisions."""
    partitions = partitions_of(config)
    frames, *regional = recorded_means(partitions, x)
    finite.require(frames, "the features x are")
    means = (frames.double(), *regional)
    earlier = EarlierRounds(weights, config, means, conditioning, supports, progress)
    plans = solve_levels(
        config, modules, partitions, means, conditioning, earlier.layout, finite, last_start=earlier.last_start
    )
    features, gates = fuse(x, plans, earlier.layout, modules.gate, config, conditioning.question, progress)
    finite.require(gates, "the fusion weights are")
    stage = Stage(earlier.layout, plans, means, gates, introduce_regions(gates, progress))
    return features, stage, conditioning.carried_by(stage)


def _question_weights(weights: StageWeights, conditioning: Conditioning, batch: int) -> Float[Tensor, "B C"]:
    if conditioning.weights is None:
        return weights.metric.shift.new_ones((batch, len(weights.metric.shift)))
    return conditioning.weights.detach().float().contiguous()


def _lay_out(
    config: CompressorConfig,
    placed: Float[Tensor, "B regions N C"],
    conditioning: Conditioning,
    supports: int,
    progress: float,
) -> Layout:
    segments = Segments.of(placed.shape[2], supports, config.segments)
    budgets = allocate(
        placed,
        conditioning.relevance,
        segments,
        supports,
        epsilon=config.levels[0].epsilon,
        config=config.transport,
        pilot=config.pilot,
        weight=schedule.relevance_weight(progress, config.allocation),
        temperature=schedule.allocation_temperature(progress, config.allocation),
    )
    return Layout(segments, supports, budgets)


class EarlierRounds:
    """A stage's budgets, and where each granularity's last round starts: what has no gradient, by kernels."""

    @torch.no_grad()
    def __init__(
        self,
        weights: StageWeights,
        config: CompressorConfig,
        means: Sequence[Float[Tensor, "B R N D"]],
        conditioning: Conditioning,
        supports: int,
        progress: float,
    ) -> None:
        self._levels, self._config, self._weights = config.active_levels, config.transport, weights
        self._partitions = partitions_of(config)
        # one round starts at its start: only granularities that have more are embedded here
        last = max((depth for depth, level in enumerate(self._levels) if level.rounds > 1), default=0)
        embedded = torch.cat([mean.detach().float() for mean in means[: last + 1]], 1)
        self._weigh = _question_weights(weights, conditioning, len(embedded))
        self._lifted, self._placed = embed_sources(
            weights.metric, self._weigh, embedded, weights.position[: embedded.shape[1]]
        )
        self.layout = _lay_out(config, self._placed, conditioning, supports, progress)
        self._record = PlanRecord.empty(self.layout, embedded.shape[1])
        self._parents = tables(self._partitions, config.position.region_bands, embedded.device).parents

    @torch.no_grad()
    def last_start(self, depth: int, plans: Sequence[Plan]) -> Float[Tensor, "B R K n"] | None:
        """Rows at the start of a granularity's last round, given the coarser plans; None if that is its only one."""
        level, offsets = self._levels[depth], offsets_of(self._partitions)
        if level.rounds == 1:
            return None
        here = slice(offsets[depth], offsets[depth] + self._partitions[depth].count)
        if depth > 0:
            above = slice(offsets[depth - 1], offsets[depth])
            self._record.rows[:, above].copy_(plans[-1].rows)
        transport_level(
            level,
            self._config,
            self._weights.metric,
            self._weigh,
            self._lifted,
            self._placed,
            self.layout,
            self._record,
            offset=offsets[depth],
            parents=self._parents[depth],
            rounds=level.rounds - 1,
        )
        return self._record.rows[:, here]


def _split(values: Tensor, partitions: Sequence[Partition]) -> tuple[Tensor, ...]:
    return values.split([each.count for each in partitions], 1)


def _plans(
    config: CompressorConfig,
    modules: StageModules,
    partitions: tuple[Partition, ...],
    means: Float[Tensor, "B regions N D"],
    record: PlanRecord,
    layout: Layout,
) -> tuple[Plan, ...]:
    parts = (_split(values, partitions) for values in (record.rows, record.mass, means))
    return tuple(
        Plan(
            name=level.name,
            partition=partition,
            layout=layout,
            rows=rows,
            mass=mass,
            stabilizer=config.transport.stabilizer,
            describe=partial(descriptors, mean, partition, modules.region_position, config.position.region_bands),
        )
        for level, partition, rows, mass, mean in zip(config.active_levels, partitions, *parts, strict=True)
    )
