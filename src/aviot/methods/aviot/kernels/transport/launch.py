"""The transport's inputs, and the launches of one granularity's rounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import triton
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import LevelConfig, TransportConfig
from aviot.methods.aviot.kernels.common import PlanBuffers
from aviot.methods.aviot.kernels.embedding import MetricWeights
from aviot.methods.aviot.kernels.split_half_matmul import SplitRows
from aviot.methods.aviot.kernels.transport import forward as kernels
from aviot.methods.aviot.segments import Layout
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

    @property
    def regions(self) -> int:
        """The granularity's number of regions."""
        return self.level.regions[0] * self.level.regions[1]


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
    (batch, _, _, width), layout, relevance = inputs.lifted.shape, inputs.layout, run.relevance
    supports = batch * run.regions * layout.supports
    carried = None if relevance is None else relevance.new_empty((batch, layout.supports))
    cost, rest = inputs.lifted.new_empty((2, supports, inputs.sizes["NB"]))
    hidden = SplitRows.empty(supports, width, inputs.lifted.device)
    launches = _LevelLaunches(inputs, run, plans, hidden, cost, rest, carried)
    for index in range(run.level.rounds if run.rounds is None else run.rounds):
        launches.move_supports(start=index == 0)
        launches.compute_costs()
        launches.couple(last=index == run.level.rounds - 1)
    return carried


@dataclass(frozen=True)
class _LevelLaunches:
    """The three launches of a granularity's rounds, and the memory between them."""

    inputs: TransportInputs
    run: LevelRun
    plans: PlanBuffers
    hidden: SplitRows
    cost: Float[Tensor, "B*R*K n"]
    rest: Float[Tensor, "B*R*K n"]  # the cost less its float32 part
    carried: Float[Tensor, "B K"] | None

    def move_supports(self, *, start: bool) -> None:
        """Write the supports' hidden activations; with `start`, the level's initial supports'."""
        inputs, run, parents = self.inputs, self.run, self.run.parents
        kernels.move_supports[self._grid](
            inputs.lifted,
            inputs.metric.shift if parents is None else parents,
            inputs.layout.budgets,
            inputs.metric.first.bias,
            self.plans.rows,
            self.hidden.halves,
            self.hidden.powers,
            *self._counts,
            inputs.lifted.shape[-1],
            run.offset,
            run.regions,
            PARENT_WEIGHT=run.level.parent_weight,
            START=start,
            HAS_PARENT=parents is not None,
            **self._tile,
            num_warps=8,
        )

    def compute_costs(self) -> None:
        """Write the squared distances between supports and sources."""
        inputs, metric, second = self.inputs, self.inputs.metric, self.inputs.metric.second
        kernels.support_costs[self._grid](
            second.apply(self.hidden),
            self.hidden.powers,
            second.largest,
            second.bias,
            inputs.placed,
            inputs.layout.budgets,
            metric.scale,
            metric.shift,
            inputs.question_weights,
            self.cost,
            self.rest,
            *self._counts,
            inputs.lifted.shape[-1],
            self.run.offset,
            self.run.regions,
            PLACE_EPS=metric.eps,
            **self._tile,
            num_warps=8,
        )

    def couple(self, *, last: bool) -> None:
        """Solve the couplings; the last round writes the plans, earlier ones the moved supports."""
        inputs, run, unused = self.inputs, self.run, self.inputs.metric.shift
        kernels.couple_segment[(self._problems,)](
            self.cost,
            self.rest,
            inputs.layout.budgets,
            unused if run.relevance is None else run.relevance,
            self.plans.rows,
            self.plans.mass,
            self.plans.entropy,
            unused if self.carried is None else self.carried,
            *self._counts,
            run.offset,
            run.regions,
            math.log(max(2, inputs.lifted.shape[2])),
            LAST=last,
            CARRY=run.relevance is not None,
            **inputs.sizes,
            **self._solver_constants,
        )

    @cached_property
    def _problems(self) -> int:
        return len(self.inputs.lifted) * self.run.regions * self.inputs.layout.segments.count

    @cached_property
    def _grid(self) -> tuple[int, int]:
        return self._problems, triton.cdiv(self.inputs.layout.slots, TILE)

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        """Regions, frames, supports, row stride, and the counts that `segment_bounds` takes."""
        _, regions, frames, _ = self.inputs.lifted.shape
        return regions, frames, self.inputs.layout.supports, self.plans.rows.stride(-2), *self.inputs.segment_counts

    @cached_property
    def _tile(self) -> dict[str, int]:
        sizes = self.inputs.sizes
        return {"MB": sizes["MB"], "NB": sizes["NB"], "RB": TILE, "CB": block(self.inputs.lifted.shape[-1])}

    @cached_property
    def _solver_constants(self) -> dict[str, Any]:
        config, epsilon, sizes = self.inputs.config, self.run.level.epsilon, self.inputs.sizes
        return {
            "EPSILON": epsilon,
            "COST_LIMIT": config.cost_bound * epsilon,
            "STABILIZER": config.stabilizer,
            "num_warps": warps_for(sizes["KB"], sizes["NB"]),
        } | damping(epsilon, config)
