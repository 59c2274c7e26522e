"""Kernels around the embedding's matrix products: descriptors, activation, layer norm and question weights.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import gelu
from aviot.methods.aviot.kernels.split_half_matmul.forward import load_product, power_above, store_halves
from aviot.ot.sinkhorn import kernel


@triton.jit
def normalise(rows, scale, shift, weigh, C, out, EPS: tl.constexpr):
    """Return w * LayerNorm(rows)."""
    real = out < C
    mean = tl.sum(tl.where(real[None, :], rows, 0.0), 1) / C
    centred = tl.where(real[None, :], rows - mean[:, None], 0.0)
    deviation = tl.sqrt_rn(tl.sum(centred * centred, 1) / C + EPS)
    gain = tl.load(scale + out, mask=real, other=0.0)[None, :]
    placed = tl.div_rn(centred, deviation[:, None]) * gain + tl.load(shift + out, mask=real, other=0.0)[None, :]
    return placed * tl.load(weigh + out, mask=real, other=0.0)[None, :]


@kernel
def describe_sources(means, position, halves, powers, regions, frames, dim, EPS: tl.constexpr, DB: tl.constexpr):
    """Write one source's descriptor as halves: a frame's mean unchanged, a region's normalised plus its position."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, DB)
    region = (row // frames) % regions
    real = d < dim
    x = tl.load(means + row * dim + d, mask=real, other=0.0)
    if region > 0:
        centred = tl.where(real, x - tl.sum(x, 0) / dim, 0.0)
        centred = tl.where(real, centred - tl.sum(centred, 0) / dim, 0.0)  # removes the rounding error of a large mean
        deviation = tl.sqrt_rn(tl.sum(centred * centred, 0) / dim + EPS)
        x = tl.div_rn(centred, deviation) + tl.load(position + region * dim + d, mask=real, other=0.0)
    power, inverse = power_above(tl.max(tl.abs(x), 0))
    top = (x * inverse).to(tl.float16)
    tl.store(halves + row * 2 * dim + d, top, mask=real)
    tl.store(halves + row * 2 * dim + dim + d, (x * inverse - top.to(tl.float32)).to(tl.float16), mask=real)
    tl.store(powers + row, power)


@kernel
def finish_lift(
    parts, powers, largest, bias, lifted, halves, half_powers, count, C, RB: tl.constexpr, CB: tl.constexpr
):
    """Write W1 x + b1 of some rows, and its gelu as halves."""
    row, out = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    present = row < count
    pre = load_product(parts, powers, largest, bias, row, present, C, out)
    tl.store(lifted + row[:, None] * C + out[None, :], pre, mask=present[:, None] & (out < C)[None, :])
    store_halves(gelu(pre), halves, half_powers, row, present, C, out)


@kernel
def activate_rows(lifted, halves, powers, count, C, RB: tl.constexpr, CB: tl.constexpr):
    """Write the gelu of some lifted rows as halves."""
    row, out = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    mask = (row < count)[:, None] & (out < C)[None, :]
    pre = tl.load(lifted + row[:, None] * C + out[None, :], mask=mask, other=0.0)
    store_halves(gelu(pre), halves, powers, row, row < count, C, out)


@kernel
def place_rows(
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
    """Write w * LayerNorm(W2 a + b2) of some rows of one video."""
    video = tl.program_id(1).to(tl.int64)
    row, out = tl.program_id(0) * RB + tl.arange(0, RB), tl.arange(0, CB)
    at = video * count + row
    value = load_product(parts, powers, largest, bias, at, row < count, C, out)
    value = normalise(value, scale, shift, weigh + video * C, C, out, EPS)
    tl.store(placed + at[:, None] * C + out[None, :], value, mask=(row < count)[:, None] & (out < C)[None, :])
