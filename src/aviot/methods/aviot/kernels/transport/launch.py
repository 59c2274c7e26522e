"""The transport's inputs, and the launches of one granularity's rounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import triton
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import LevelConfig, TransportConfig
from aviot.methods.aviot.kernels.common import PlanBuffers
from aviot.methods.aviot.kernels.embedding import MetricWeights
from aviot.methods.aviot.kernels.split_half_matmul import SplitRows
from aviot.methods.aviot.kernels.transport.forward import couple_segment, move_supports, support_costs
from aviot.methods.aviot.layout import Layout
from aviot.ot.sinkhorn import block, damping, warps_for

TILE = 16  # supports of one program that moves them


@dataclass(frozen=True)
class LevelRun:
    """One granularity's rounds: which regions, and from where they start."""

    level: LevelConfig
    offset: int  # the granularity's first region among all
    parents: Int[Tensor, "R"] | None  # index of each region's parent among all; None for the whole frame
    relevance: Float[Tensor, "B N"] | None = None  # of the sources; None: the supports' is not needed
    rounds: int | None = None  # fewer than the level's: the rows written are those of the supports as last moved


@dataclass(frozen=True)
class TransportInputs:
    """The inputs of all granularities' rounds, without gradient."""

    levels: tuple[LevelConfig, ...]
    config: TransportConfig
    metric: MetricWeights
    question_weights: Float[Tensor, "B C"]
    lifted: Float[Tensor, "B regions N C"]
    placed: Float[Tensor, "B regions N C"]
    layout: Layout
    offsets: tuple[int, ...]  # each granularity's first region among all
    parents: tuple[Int[Tensor, "R"] | None, ...]
    relevance: Float[Tensor, "B N"] | None

    def runs(self) -> Iterator[LevelRun]:
        """Yield every granularity's run, coarse to fine; the whole frame's carries the relevance."""
        for level, offset, parents in zip(self.levels, self.offsets, self.parents, strict=True):
            yield LevelRun(level, offset, parents, self.relevance if parents is None else None)

    @cached_property
    def problems(self) -> int:
        """Number of problems: segments of all regions of all videos."""
        return self.lifted.shape[0] * self.lifted.shape[1] * self.layout.segments.count

    @cached_property
    def segment_counts(self) -> tuple[int, int, int]:
        """Longest segment, number of segments of that length, number of segments, for `segment_bounds`."""
        segments = self.layout.segments
        return segments.longest, segments.full, segments.count

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Tile sizes that hold a segment's sources and supports."""
        segments = self.layout.segments
        return {"MB": block(segments.count), "KB": block(self.layout.slots), "NB": block(segments.longest)}


def transport_level(inputs: TransportInputs, run: LevelRun, plans: PlanBuffers) -> Float[Tensor, "B K"] | None:
    """Write one granularity's plans; with a relevance of the sources, return that of the supports."""
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
    shape = (regions, frames, layout.supports, plans.rows.stride(-2), segments.longest, segments.full, segments.count)
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
        move_supports[grid](
            lifted,
            unused if parents is None else parents,
            layout.budgets,
            metric.first.bias,
            plans.rows,
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
        support_costs[grid](
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
        couple_segment[(problems,)](
            cost,
            rest,
            layout.budgets,
            unused if relevance is None else relevance,
            plans.rows,
            plans.mass,
            plans.entropy,
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
