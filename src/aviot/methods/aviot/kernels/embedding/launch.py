"""The embedding's weights and launches."""

from dataclasses import dataclass

import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.embedding.forward import activate_rows, describe_sources, finish_lift, place_rows
from aviot.methods.aviot.kernels.split_half_matmul import SplitMap, SplitRows
from aviot.methods.aviot.metric import Metric
from aviot.methods.aviot.regions import DESCRIPTOR_EPS
from aviot.ot.sinkhorn import block

ROWS = 8  # of one program


@dataclass(frozen=True)
class MetricWeights:
    """The embedding's parameters in the form that kernels take."""

    first: SplitMap
    second: SplitMap
    scale: Float[Tensor, "C"]
    shift: Float[Tensor, "C"]
    eps: float

    @classmethod
    def of(cls, metric: Metric) -> "MetricWeights":
        """Convert a metric's parameters."""
        parts = metric.parts
        first, second = SplitMap.of(parts.first, parts.first_bias), SplitMap.of(parts.second, parts.second_bias)
        scale, shift = (tensor.detach().float().contiguous() for tensor in (parts.gain, parts.shift))
        return cls(first, second, scale, shift, metric.embed[-1].eps)


def embed_sources(
    metric: MetricWeights,
    weigh: Float[Tensor, "B C"],
    means: Float[Tensor, "B regions N D"],
    position: Float[Tensor, "regions D"],
) -> tuple[Float[Tensor, "B regions N C"], Float[Tensor, "B regions N C"]]:
    """Return W1 x + b1 and w(q) * phi(x) of every descriptor; the first region is the whole frame."""
    batch, regions, frames, dim = means.shape
    count, width = batch * regions * frames, len(metric.shift)
    described = SplitRows.empty(count, dim, means.device)
    describe_sources[(count,)](
        means,
        position,
        described.halves,
        described.powers,
        regions,
        frames,
        dim,
        EPS=DESCRIPTOR_EPS,
        DB=block(dim),
        num_warps=4,
    )
    lifted, placed = means.new_empty((2, batch, regions, frames, width))
    hidden = SplitRows.empty(count, width, means.device)
    tile = {"RB": ROWS, "CB": block(width)}
    first, second = metric.first, metric.second
    parts = first.apply(described)
    finish_lift[(triton.cdiv(count, ROWS),)](
        parts,
        described.powers,
        first.largest,
        first.bias,
        lifted,
        hidden.halves,
        hidden.powers,
        count,
        width,
        **tile,
    )
    parts = second.apply(hidden)
    place_rows[(triton.cdiv(regions * frames, ROWS), batch)](
        parts,
        hidden.powers,
        second.largest,
        second.bias,
        metric.scale,
        metric.shift,
        weigh,
        placed,
        regions * frames,
        width,
        EPS=metric.eps,
        **tile,
    )
    return lifted, placed


def activate(lifted: Float[Tensor, "points C"]) -> SplitRows:
    """Return the gelu of lifted points as split rows."""
    count, width = lifted.shape
    hidden = SplitRows.empty(count, width, lifted.device)
    grid = (triton.cdiv(count, ROWS),)
    activate_rows[grid](lifted, hidden.halves, hidden.powers, count, width, RB=ROWS, CB=block(width))
    return hidden
