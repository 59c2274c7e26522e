"""The transport space's coordinates: w(q) * phi(x) = w * LayerNorm(W2 gelu(W1 x + b1) + b2), of sources and supports.

The matrix products are the library's, on tensor cores, which see ten bits of a mantissa. Every factor is therefore
given as its top, the nearest number that they see, and the rest: rest * top + top * rest + top * top is the product to
2^-23 of it. The kernels here make the factors and finish the rows.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.compressor.metric import Metric
from aviot.compressor.numerics import tensor_cores
from aviot.compressor.regions import DESCRIPTOR_EPS
from aviot.ot.sinkhorn import block, kernel

ROWS = 8  # of a tile that only normalises


@dataclass(frozen=True)
class MetricWeights:
    """The embedding's parameters as the products take them: [D, C] and so on, tops and rests stacked."""

    first: Float[Tensor, "2D C"]  # top, top: against top, rest
    first_rest: Float[Tensor, "D C"]
    first_bias: Float[Tensor, "C"]
    second: Float[Tensor, "3C C"]  # top, top, rest: against top, rest, top
    second_bias: Float[Tensor, "C"]
    scale: Float[Tensor, "C"]
    shift: Float[Tensor, "C"]
    eps: float

    @classmethod
    def of(cls, metric: Metric) -> "MetricWeights":
        """Read off a metric's modules."""
        w1, b1, w2, b2, scale, shift = (tensor.detach().float().contiguous() for tensor in metric.parts)
        (top1, rest1), (top2, rest2) = in_parts(w1.T), in_parts(w2.T)
        return cls(
            torch.cat((top1, top1)), rest1, b1, torch.cat((top2, top2, rest2)), b2, scale, shift, metric.embed[-1].eps
        )


def in_parts(weight: Float[Tensor, "D C"]) -> tuple[Float[Tensor, "D C"], Float[Tensor, "D C"]]:
    """The nearest numbers with ten bits of mantissa, and what is left."""
    top = ((weight.contiguous().view(torch.int32) + 2**12) & -(2**13)).view(torch.float32)
    return top, weight - top


@triton.jit
def top_of(x):
    """The nearest number with ten bits of mantissa."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def gelu(x):
    """x Phi(x), exactly."""
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def store_activation(pre, at, present, C, out):
    """gelu(pre) as the second product takes it: top, rest, top."""
    active = gelu(pre)
    top = top_of(active)
    mask = present[:, None] & (out < C)[None, :]
    tl.store(at[:, None] + out[None, :], top, mask=mask)
    tl.store(at[:, None] + C + out[None, :], active - top, mask=mask)
    tl.store(at[:, None] + 2 * C + out[None, :], top, mask=mask)


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
def _describe(means, position, described, regions, frames, dim, EPS: tl.constexpr, DB: tl.constexpr):
    """One source's descriptor in two parts: the whole frame's mean as it is, a region's normalised and placed."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, DB)
    region = (row // frames) % regions
    real = d < dim
    x = tl.load(means + row * dim + d, mask=real, other=0.0)
    if region > 0:
        centred = tl.where(real, x - tl.sum(x, 0) / dim, 0.0)
        centred = tl.where(real, centred - tl.sum(centred, 0) / dim, 0.0)  # what a large mean was rounded by
        deviation = tl.sqrt_rn(tl.sum(centred * centred, 0) / dim + EPS)
        x = tl.div_rn(centred, deviation) + tl.load(position + region * dim + d, mask=real, other=0.0)
    top = top_of(x)
    tl.store(described + row * 2 * dim + d, top, mask=real)
    tl.store(described + row * 2 * dim + dim + d, x - top, mask=real)


@kernel
def _activate(lifted, active, count, C, RB: tl.constexpr, CB: tl.constexpr):
    """gelu of some rows, as the second product takes it."""
    row, out = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    mask = (row < count)[:, None] & (out < C)[None, :]
    pre = tl.load(lifted + row[:, None] * C + out[None, :], mask=mask, other=0.0)
    store_activation(pre, active + row * 3 * C, row < count, C, out)


@kernel
def _place(rows, scale, shift, weigh, count, C, EPS: tl.constexpr, RB: tl.constexpr, CB: tl.constexpr):
    """w * LayerNorm of some rows of one video, in place."""
    video = tl.program_id(1).to(tl.int64)
    row, out = tl.program_id(0) * RB + tl.arange(0, RB), tl.arange(0, CB)
    mask = (row < count)[:, None] & (out < C)[None, :]
    at = rows + (video * count + row)[:, None] * C + out[None, :]
    placed = normalise(tl.load(at, mask=mask, other=0.0), scale, shift, weigh + video * C, C, out, EPS)
    tl.store(at, placed, mask=mask)


def embed_sources(
    metric: MetricWeights,
    weigh: Float[Tensor, "B C"],
    means: Float[Tensor, "B regions N D"],
    position: Float[Tensor, "regions D"],
) -> tuple[Float[Tensor, "B regions N C"], Float[Tensor, "B regions N C"]]:
    """W1 x + b1 and w(q) * phi(x) of every descriptor; the first region is the whole frame."""
    batch, regions, frames, dim = means.shape
    count, width = batch * regions * frames, len(metric.shift)
    described = means.new_empty((count, 2 * dim))
    _describe[(count,)](
        means, position, described, regions, frames, dim, EPS=DESCRIPTOR_EPS, DB=block(dim), num_warps=4
    )
    with tensor_cores():
        lifted = torch.addmm(metric.first_bias, described, metric.first)
        lifted.addmm_(described[:, :dim], metric.first_rest)
    placed = second_map(metric, activate(lifted))
    size = {"RB": ROWS, "CB": block(width)}
    _place[(triton.cdiv(regions * frames, ROWS), batch)](
        placed, metric.scale, metric.shift, weigh, regions * frames, width, EPS=metric.eps, **size
    )
    shape = (batch, regions, frames, width)
    return lifted.view(shape), placed.view(shape)


def activate(lifted: Float[Tensor, "count C"]) -> Float[Tensor, "count 3C"]:
    """gelu of lifted points in parts: top, rest, top."""
    count, width = lifted.shape
    active = lifted.new_empty((count, 3 * width))
    _activate[(triton.cdiv(count, ROWS),)](lifted, active, count, width, RB=ROWS, CB=block(width))
    return active


def second_map(metric: MetricWeights, active: Float[Tensor, "count 3C"]) -> Float[Tensor, "count C"]:
    """W2 a + b2 of activations in parts."""
    with tensor_cores():
        return torch.addmm(metric.second_bias, active, metric.second)
