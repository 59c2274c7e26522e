"""Kernel of the gate's parameter gradients; its statistics carry no gradient.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import gelu, gelu_slope
from aviot.ot.sinkhorn import kernel


@triton.jit
def _matrix(at, rows, columns, height, width):
    """Load a small row-major matrix, padded with zeros."""
    inside = (rows < height)[:, None] & (columns < width)[None, :]
    return tl.load(at + rows[:, None] * width + columns[None, :], mask=inside, other=0.0)


@kernel
def gate_backward(
    statistics,
    gradient,
    norm_scale,
    norm_shift,
    first,
    first_bias,
    second,
    second_bias,
    sums,
    count,
    FEATURES: tl.constexpr,
    HIDDEN: tl.constexpr,
    LEVELS: tl.constexpr,
    EPS: tl.constexpr,
    TEMPERATURE: tl.constexpr,
    GLOBAL_FLOOR: tl.constexpr,
    RB: tl.constexpr,
    FB: tl.constexpr,
    HB: tl.constexpr,
    LB: tl.constexpr,
):
    """Sum some rows' gradients, all parameters one after the other."""
    f, h, b = tl.arange(0, FB), tl.arange(0, HB), tl.arange(0, LB)
    gain = tl.load(norm_scale + f, mask=f < FEATURES, other=0.0)
    shift = tl.load(norm_shift + f, mask=f < FEATURES, other=0.0)
    into = _matrix(first, h, f, HIDDEN, FEATURES)
    onto = _matrix(second, b, h, LEVELS, HIDDEN)
    hidden_bias = tl.load(first_bias + h, mask=h < HIDDEN, other=0.0)
    logit_bias = tl.load(second_bias + b, mask=b < LEVELS, other=0.0)
    to_gain, to_shift = tl.zeros((FB,), tl.float32), tl.zeros((FB,), tl.float32)
    to_first, to_first_bias = tl.zeros((HB, FB), tl.float32), tl.zeros((HB,), tl.float32)
    to_second, to_second_bias = tl.zeros((LB, HB), tl.float32), tl.zeros((LB,), tl.float32)
    for start in range(tl.program_id(0) * RB, count, tl.num_programs(0) * RB):
        row = (start + tl.arange(0, RB)).to(tl.int64)
        known = (row < count)[:, None] & (f < FEATURES)[None, :]
        seen = tl.load(statistics + row[:, None] * FEATURES + f[None, :], mask=known, other=0.0)
        centred = tl.where(known, seen - (tl.sum(seen, 1) / FEATURES)[:, None], 0.0)
        normal = centred / tl.sqrt_rn(tl.sum(centred * centred, 1) / FEATURES + EPS)[:, None]
        scaled = normal * gain[None, :] + shift[None, :]
        pre = tl.dot(scaled, tl.trans(into), input_precision="tf32x3") + hidden_bias[None, :]
        hidden = gelu(pre)
        logits = tl.dot(hidden, tl.trans(onto), input_precision="tf32x3") + logit_bias[None, :]
        logits = tl.where((b < LEVELS)[None, :], logits / TEMPERATURE, -float("inf"))
        share = tl.exp(logits - tl.max(logits, 1)[:, None])
        share = share / tl.sum(share, 1)[:, None]
        inside = (row < count)[:, None] & (b < LEVELS)[None, :]
        change = tl.load(gradient + row[:, None] * LEVELS + b[None, :], mask=inside, other=0.0)
        to_logits = share * (change - tl.sum(share * change, 1)[:, None]) * ((1.0 - GLOBAL_FLOOR) / TEMPERATURE)
        to_second += tl.dot(tl.trans(to_logits), hidden, input_precision="tf32x3")
        to_second_bias += tl.sum(to_logits, 0)
        to_pre = tl.dot(to_logits, onto, input_precision="tf32x3") * gelu_slope(pre)
        to_first += tl.dot(tl.trans(to_pre), scaled, input_precision="tf32x3")
        to_first_bias += tl.sum(to_pre, 0)
        to_scaled = tl.dot(to_pre, into, input_precision="tf32x3")
        to_gain += tl.sum(to_scaled * normal, 0)
        to_shift += tl.sum(to_scaled, 0)
    at = sums + tl.program_id(0) * (2 * FEATURES + HIDDEN * (FEATURES + 1) + LEVELS * (HIDDEN + 1))
    tl.store(at + f, to_gain, mask=f < FEATURES)
    tl.store(at + FEATURES + f, to_shift, mask=f < FEATURES)
    at += 2 * FEATURES
    inside = (h < HIDDEN)[:, None] & (f < FEATURES)[None, :]
    tl.store(at + h[:, None] * FEATURES + f[None, :], to_first, mask=inside)
    tl.store(at + HIDDEN * FEATURES + h, to_first_bias, mask=h < HIDDEN)
    at += HIDDEN * (FEATURES + 1)
    tl.store(at + b[:, None] * HIDDEN + h[None, :], to_second, mask=(b < LEVELS)[:, None] & (h < HIDDEN)[None, :])
    tl.store(at + LEVELS * HIDDEN + b, to_second_bias, mask=b < LEVELS)
