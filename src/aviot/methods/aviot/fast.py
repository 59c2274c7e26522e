"""A stage by kernels: everything between features and fused features in a dozen launches, nothing read by the host.

With gradients (`run_recorded_stage`) the same kernels run; means, plans, gates and fusion have reverse passes of their
own, and plain torch differentiates what is between.
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
from aviot.methods.aviot.kernels.allocation import allocate
from aviot.methods.aviot.kernels.aside import Aside
from aviot.methods.aviot.kernels.embedding import MetricWeights, embed_sources
from aviot.methods.aviot.kernels.features import fuse_rows
from aviot.methods.aviot.kernels.means import RegionMeans, region_means
from aviot.methods.aviot.kernels.plans import Plans
from aviot.methods.aviot.kernels.products import Products
from aviot.methods.aviot.kernels.record import PlanRecord
from aviot.methods.aviot.kernels.rounds import Rounds
from aviot.methods.aviot.kernels.tables import Tables, offsets_of, tables
from aviot.methods.aviot.kernels.transport import transport_level
from aviot.methods.aviot.layout import Layout
from aviot.methods.aviot.level import Plan
from aviot.methods.aviot.regions import DESCRIPTOR_EPS, Partition, descriptors
from aviot.methods.aviot.segments import Segments
from aviot.methods.aviot.stage import AllRegions, Conditioning, Stage, StageModules, partitions_of


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
    """What `aviot.methods.aviot.stage.run_stage` does, without gradient."""
    partitions = partitions_of(config)
    known = tables(partitions, config.position.region_bands, x.device)
    offsets = offsets_of(partitions)
    means = region_means(partitions, x)
    finite.require(means[:, 0], "the features x are")
    weigh = _question_weights(weights, conditioning, len(x))
    lifted, placed = embed_sources(weights.metric, weigh, means, weights.position)
    aside = Aside(x.device)
    products = _take_products(aside, config, x, conditioning, supports, known)
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
    how = (products, layout, config, conditioning, progress)
    features, stage = _fuse(modules, x, means, record, aside, finite, *how)
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
    """The same with gradients, by the same kernels."""
    partitions = partitions_of(config)
    known = tables(partitions, config.position.region_bands, x.device)
    means, x = RegionMeans.apply(x, partitions)
    finite.require(means[:, 0], "the features x are")
    rounds = _rounds(weights, config, means.detach(), conditioning, supports, progress)
    aside = Aside(x.device)
    products = _take_products(aside, config, x, conditioning, supports, known)
    sources = _describe(modules, means, known)
    rows, mass, entropy, carried = Plans.apply(sources, conditioning.weights, rounds, *modules.metric.parts)
    how = (products, rounds.layout, config, conditioning, progress)
    record = PlanRecord(rows, mass, entropy)
    features, stage = _fuse(modules, x, means, record, aside, finite, *how)
    stage = replace(stage, regions=AllRegions(rows, mass, sources, means))
    return features, stage, replace(conditioning, relevance=carried)


def _fuse(
    modules: StageModules,
    x: Float[Tensor, "B N S D"],
    means: Float[Tensor, "B regions N D"],
    record: PlanRecord,
    aside: Aside,
    finite: FiniteCheck,
    products: Products | None,
    layout: Layout,
    config: CompressorConfig,
    conditioning: Conditioning,
    progress: float,
) -> tuple[Float[Tensor, "B K S D"], Stage]:
    """The fused features, once the products are there, and the stage's record."""
    finite.require(record.entropy, "the transport plans are")
    partitions = partitions_of(config)
    known = tables(partitions, config.position.region_bands, x.device)
    plans = _plans(config, modules, partitions, means, record, layout)
    aside.wait()
    how = (products, known, layout, modules.gate, config, conditioning.question, progress)
    features, gates = fuse_rows(x, record.rows, record.entropy, *how)
    finite.require(gates, "the fusion weights are")
    applied = introduce_regions(gates, progress)
    return features, Stage(layout, plans, tuple(_split(means, partitions)), gates, applied)


@torch.no_grad()
def _take_products(
    aside: Aside,
    config: CompressorConfig,
    x: Float[Tensor, "B N S D"],
    conditioning: Conditioning,
    supports: int,
    known: Tables,
) -> Products | None:
    """The features' products, on their way beside what comes next; None where no gate asks for them."""
    if len(config.active_levels) == 1 or config.fusion == "equal":
        return None
    asked = conditioning.question
    question = x.new_zeros((len(x), x.shape[-1])) if asked is None else asked.to(x.dtype).contiguous()
    products = Products.empty(question, known.groups, Segments.of(x.shape[1], supports, config.segments))
    with aside:
        products.fill(x)
    return products


def _describe(
    modules: StageModules, means: Float[Tensor, "B regions N D"], known: Tables
) -> Float[Tensor, "B regions N D"]:
    """Every region's descriptors: the whole frame's mean as it is, the others' normalised and placed."""
    if means.shape[1] == 1:
        return means
    frames, regional = means.split([1, means.shape[1] - 1], 1)
    normalised = F.layer_norm(regional, means.shape[-1:], eps=DESCRIPTOR_EPS)
    return torch.cat((frames, normalised + modules.region_position(known.codes[1:])[:, None]), 1)


@torch.no_grad()
def _rounds(
    weights: StageWeights,
    config: CompressorConfig,
    means: Float[Tensor, "B regions N D"],
    conditioning: Conditioning,
    supports: int,
    progress: float,
) -> Rounds:
    """The embedded sources and the budgets."""
    weigh = _question_weights(weights, conditioning, len(means))
    lifted, placed = embed_sources(weights.metric, weigh, means, weights.position)
    partitions = partitions_of(config)
    return Rounds(
        levels=config.active_levels,
        config=config.transport,
        metric=weights.metric,
        weigh=weigh,
        lifted=lifted,
        placed=placed,
        layout=_lay_out(config, placed, conditioning, supports, progress),
        offsets=tuple(offsets_of(partitions)),
        parents=tables(partitions, config.position.region_bands, means.device).parents,
        relevance=conditioning.relevance,
    )


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
