"""What all rounds of a stage share, forward and back."""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import LevelConfig, TransportConfig
from aviot.methods.aviot.kernels.embedding import MetricWeights
from aviot.methods.aviot.layout import Layout
from aviot.ot.sinkhorn import block


@dataclass(frozen=True)
class Rounds:
    """What a stage's rounds are made of, without gradient."""

    levels: tuple[LevelConfig, ...]
    config: TransportConfig
    metric: MetricWeights
    weigh: Float[Tensor, "B C"]
    lifted: Float[Tensor, "B regions N C"]
    placed: Float[Tensor, "B regions N C"]
    layout: Layout
    offsets: tuple[int, ...]  # each granularity's first region among all
    parents: tuple[Int[Tensor, "R"] | None, ...]
    relevance: Float[Tensor, "B N"] | None

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
