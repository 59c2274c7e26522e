"""The transport space's coordinates: w(q) * phi(x) = w * LayerNorm(W2 gelu(W1 x + b1) + b2), of sources and supports.

The matrix products are the library's (`kernels/halves.py`). The kernels here make the rows that go in and finish those
that come out.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.halves import SplitMap, SplitRows, load_product, power_above, store_halves
from aviot.methods.aviot.metric import Metric
from aviot.methods.aviot.regions import DESCRIPTOR_EPS
from aviot.ot.sinkhorn import block, kernel

ROWS = 8  # of a tile that only activates or normalises


@dataclass(frozen=True)
class MetricWeights:
    """The embedding's parameters as kernels take them."""

    first: SplitMap
    second: SplitMap
    scale: Float[Tensor, "C"]
    shift: Float[Tensor, "C"]
    eps: float

    @classmethod
    def of(cls, metric: Metric) -> "MetricWeights":
        """Read off a metric's modules."""
        parts = metric.parts
        first, second = SplitMap.of(parts.first, parts.first_bias), SplitMap.of(parts.second, parts.second_bias)
        scale, shift = (tensor.detach().float().contiguous() for tensor in (parts.gain, parts.shift))
        return cls(first, second, scale, shift, metric.embed[-1].eps)


@triton.jit
def gelu(x):
    """x Phi(x), exactly."""
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def normalise(rows, scale, shift, weigh, C, out, EPS: tl.constexpr):
    """w * LayerNorm(rows)."""
    real = out < C
    mean = tl.sum(tl.where(real[None, :], rows, 0.0), 1) / C
    centred = tl.where(real[None, :], rows - mean[:, None], 0.0)
    deviation = tl.sqrt_rn(tl.sum(centred * centred, 1) / C + EPS)
    gain = tl.load(scale + out, mask=real, other=0.0)[None, :]
    placed = tl.div_rn(centred, deviation[:, None]) * gain + tl.load(shift + out, mask=real, other=0.0)[None, :]
    return placed * tl.load(weigh + out, mask=real, other=0.0)[None, :]


@kernel
def _describe(means, position, halves, powers, regions, frames, dim, EPS: tl.constexpr, DB: tl.constexpr):
    """One source's descriptor in halves: the whole frame's mean as it is, a region's normalised and placed."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, DB)
    region = (row // frames) % regions
    real = d < dim
    x = tl.load(means + row * dim + d, mask=real, other=0.0)
    if region > 0:
        centred = tl.where(real, x - tl.sum(x, 0) / dim, 0.0)
        centred = tl.where(real, centred - tl.sum(centred, 0) / dim, 0.0)  # what a large mean was rounded by
        deviation = tl.sqrt_rn(tl.sum(centred * centred, 0) / dim + EPS)
        x = tl.div_rn(centred, deviation) + tl.load(position + region * dim + d, mask=real, other=0.0)
    power, inverse = power_above(tl.max(tl.abs(x), 0))
    top = (x * inverse).to(tl.float16)
    tl.store(halves + row * 2 * dim + d, top, mask=real)
    tl.store(halves + row * 2 * dim + dim + d, (x * inverse - top.to(tl.float32)).to(tl.float16), mask=real)
    tl.store(powers + row, power)


@kernel
def _finish_lift(
    parts, powers, largest, bias, lifted, halves, half_powers, count, C, RB: tl.constexpr, CB: tl.constexpr
):
    """W1 x + b1 of some rows, and its gelu in halves."""
    row, out = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    present = row < count
    pre = load_product(parts, powers, largest, bias, row, present, C, out)
    tl.store(lifted + row[:, None] * C + out[None, :], pre, mask=present[:, None] & (out < C)[None, :])
    store_halves(gelu(pre), halves, half_powers, row, present, C, out)


@kernel
def _activate(lifted, halves, powers, count, C, RB: tl.constexpr, CB: tl.constexpr):
    """gelu of some lifted rows in halves."""
    row, out = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    mask = (row < count)[:, None] & (out < C)[None, :]
    pre = tl.load(lifted + row[:, None] * C + out[None, :], mask=mask, other=0.0)
    store_halves(gelu(pre), halves, powers, row, row < count, C, out)


@kernel
def _place(
    parts,
    powers,
    largest,
    bias,
    scale,
    shift,
    weigh,
    placed,
    count,
    C,
    EPS: tl.constexpr,
    RB: tl.constexpr,
    CB: tl.constexpr,
):
    """w * LayerNorm(W2 a + b2) of some rows of one video."""
    video = tl.program_id(1).to(tl.int64)
    row, out = tl.program_id(0) * RB + tl.arange(0, RB), tl.arange(0, CB)
    at = video * count + row
    value = load_product(parts, powers, largest, bias, at, row < count, C, out)
    value = normalise(value, scale, shift, weigh + video * C, C, out, EPS)
    tl.store(placed + at[:, None] * C + out[None, :], value, mask=(row < count)[:, None] & (out < C)[None, :])


def embed_sources(
    metric: MetricWeights,
    weigh: Float[Tensor, "B C"],
    means: Float[Tensor, "B regions N D"],
    position: Float[Tensor, "regions D"],
) -> tuple[Float[Tensor, "B regions N C"], Float[Tensor, "B regions N C"]]:
    """W1 x + b1 and w(q) * phi(x) of every descriptor; the first region is the whole frame."""
    batch, regions, frames, dim = means.shape
    count, width = batch * regions * frames, len(metric.shift)
    described = SplitRows.empty(count, dim, means.device)
    _describe[(count,)](
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
    _finish_lift[(triton.cdiv(count, ROWS),)](
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
    _place[(triton.cdiv(regions * frames, ROWS), batch)](
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
    """gelu of lifted points."""
    count, width = lifted.shape
    hidden = SplitRows.empty(count, width, lifted.device)
    grid = (triton.cdiv(count, ROWS),)
    _activate[grid](lifted, hidden.halves, hidden.powers, count, width, RB=ROWS, CB=block(width))
    return hidden
