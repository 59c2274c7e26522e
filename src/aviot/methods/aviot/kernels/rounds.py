"""The inputs of a stage's transport, shared by all granularities, forward and backward."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import LevelConfig, TransportConfig
from aviot.methods.aviot.kernels.embedding import MetricWeights
from aviot.methods.aviot.layout import Layout
from aviot.ot.sinkhorn import block


@dataclass(frozen=True)
class LevelRun:
    """One granularity's rounds: which regions, and from where they start."""

    level: LevelConfig
    offset: int  # the granularity's first region among all
    parents: Int[Tensor, "R"] | None  # index of each region's parent among all; None for the whole frame
    relevance: Float[Tensor, "B N"] | None = None  # of the sources, where that of the supports is wanted
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
        """Segments of all regions of all videos."""
        return self.lifted.shape[0] * self.lifted.shape[1] * self.layout.segments.count

    @cached_property
    def place(self) -> tuple[int, int, int]:
        """What kernels need to find a segment."""
        segments = self.layout.segments
        return segments.longest, segments.full, segments.count

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Tiles that hold a segment's sources and supports."""
        segments = self.layout.segments
        return {"MB": block(segments.count), "KB": block(self.layout.slots), "NB": block(segments.longest)}
