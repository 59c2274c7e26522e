"""A stage by kernels: everything between features and fused features in a dozen launches, nothing read by the host.

This is a stage without gradients. With them `aviot.compressor.stage` runs it, where means, fusion and solver are
kernels with reverse passes of their own, and plain torch differentiates what is between.
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
from aviot.compressor.kernels.embedding import MetricWeights, embed_sources
from aviot.compressor.kernels.features import fuse_rows
from aviot.compressor.kernels.means import region_means
from aviot.compressor.kernels.tables import offsets_of, tables
from aviot.compressor.kernels.transport import PlanRecord, transport_level
from aviot.compressor.layout import Layout
from aviot.compressor.level import Plan
from aviot.compressor.regions import Partition, descriptors
from aviot.compressor.segments import Segments
from aviot.compressor.stage import Conditioning, Stage, StageModules
from aviot.config import CompressorConfig


@dataclass(frozen=True)
class StageWeights:
    """The learned parts as kernels take them, made once a compression."""

    modules: StageModules
    metric: MetricWeights
    position: Float[Tensor, "regions D"]  # of every granularity's regions; zero for the whole frame

    @classmethod
    @torch.no_grad()
    def of(cls, config: CompressorConfig, modules: StageModules) -> "StageWeights":
        """Read off the modules."""
        known = tables(partitions_of(config), config.position.region_bands, modules.region_position.weight.device)
        return cls(modules, MetricWeights.of(modules.metric), modules.region_position(known.codes))


def partitions_of(config: CompressorConfig) -> tuple[Partition, ...]:
    """The granularities' partitions, coarse to fine."""
    return tuple(Partition(config.grid, level.regions) for level in config.active_levels)


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
    metric = weights.metric
    weigh = conditioning.weights
    weigh = means.new_ones((len(x), len(metric.shift))) if weigh is None else weigh.float().contiguous()
    lifted, placed = embed_sources(metric, weigh, means, weights.position)
    segments = Segments.of(x.shape[1], supports, config.segments)
    budgets, probabilities = allocate(
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
    finite.require(probabilities, "the allocation probabilities are")
    layout = Layout(segments, supports, budgets)
    record = PlanRecord.empty(layout, means.shape[1])
    carried: Tensor | None = None
    for level, offset, parents in zip(config.active_levels, offsets, known.parents, strict=True):
        heard = conditioning.relevance if parents is None else None
        found = transport_level(
            level,
            config.transport,
            metric,
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
    features, gates = fuse_rows(
        x, record.rows, record.entropy, known, layout, modules.gate, config, conditioning.question, progress
    )
    finite.require(gates, "the fusion weights are")
    stage = Stage(layout, plans, tuple(_split(means, partitions)), gates, introduce_regions(gates, progress))
    return features, stage, replace(conditioning, relevance=carried)


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
