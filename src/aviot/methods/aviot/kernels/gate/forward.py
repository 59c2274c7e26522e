"""Kernel of the gate: statistics, then its weights, of some supports at one position.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.branch_moments.forward import MOMENTS
from aviot.methods.aviot.kernels.device_functions import at_least, gelu
from aviot.ot.sinkhorn import kernel


@triton.jit
def _rms(squares, dim, FLOOR: tl.constexpr):
    return tl.sqrt_rn(at_least(squares / dim, FLOOR * FLOOR))


@triton.jit
def _relative(squares, a, b, dim, FLOOR: tl.constexpr):
    return _rms(squares, dim, FLOOR) / at_least((a + b) * 0.5, FLOOR)


@triton.jit
def _cosine(product, a, b, FLOOR: tl.constexpr):
    return product / (at_least(tl.sqrt_rn(a), FLOOR) * at_least(tl.sqrt_rn(b), FLOOR))


@triton.jit
def _bounded(value, low: tl.constexpr, high: tl.constexpr):
    """Clamp a value; NaN stays NaN."""
    return tl.where(value < low, low, tl.where(value > high, high, value))


@kernel
def gate_forward(
    moments,
    entropy,
    region_of_patch,
    question,
    norm_scale,
    norm_shift,
    first,
    first_bias,
    second,
    second_bias,
    statistics,
    gates,
    patches,
    regions,
    supports,
    dim,
    LEVELS: tl.constexpr,
    FEATURES: tl.constexpr,
    ASKED: tl.constexpr,
    DECIDE: tl.constexpr,
    HIDDEN: tl.constexpr,
    EPS: tl.constexpr,
    TEMPERATURE: tl.constexpr,
    GLOBAL_FLOOR: tl.constexpr,
    SMALLEST_RMS: tl.constexpr,
    SMALLEST_NORM: tl.constexpr,
    BOUND: tl.constexpr,
    KB: tl.constexpr,
    FB: tl.constexpr,
    HB: tl.constexpr,
    LB: tl.constexpr,
    QB: tl.constexpr,
):
    """Compute seven statistics per branch for some supports of one patch, then the gate's weights from them."""
    patch, video = tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = tl.program_id(0) * KB + tl.arange(0, KB)
    real = j < supports
    at = tl.where((j == 0) & (supports > 1), 1, j)  # the first support takes the second's change
    target = (video * patches + patch) * supports + j
    lengths = moments + target * (LEVELS * MOMENTS)
    size_sum, spread_sum, magnitude_sum = (
        tl.zeros((KB,), tl.float32),
        tl.zeros((KB,), tl.float32),
        tl.zeros((KB,), tl.float32),
    )
    for branch in tl.static_range(LEVELS):
        size = tl.load(lengths + branch * MOMENTS, mask=real, other=0.0)
        size_sum += size
        spread_sum += tl.load(lengths + branch * MOMENTS + 2, mask=real, other=0.0)
        magnitude_sum += _rms(size, dim, SMALLEST_RMS)
    centre = at_least((size_sum - spread_sum) / LEVELS, 0.0)
    question_square = 0.0
    if ASKED:
        q = tl.arange(0, QB)
        question_row = tl.load(question + video * dim + q, mask=q < dim, other=0.0)
        question_square = tl.sum(question_row * question_row, 0)
    out = statistics + target * FEATURES
    alone = supports == 1
    for branch in tl.static_range(LEVELS):
        size = tl.load(lengths + branch * MOMENTS, mask=real, other=0.0)
        spread = tl.load(lengths + branch * MOMENTS + 2, mask=real, other=0.0)
        magnitude = _rms(size, dim, SMALLEST_RMS)
        here = moments + ((video * patches + patch) * supports + at) * (LEVELS * MOMENTS) + branch * MOMENTS
        step = tl.load(here + 1, mask=real & (at > 0), other=0.0)
        ours = _rms(tl.load(here, mask=real, other=0.0), dim, SMALLEST_RMS)
        earlier = _rms(tl.load(here - LEVELS * MOMENTS, mask=real & (at > 0), other=0.0), dim, SMALLEST_RMS)
        change = tl.where(alone, 0.0, _relative(step, ours, earlier, dim, SMALLEST_RMS))
        region = video * regions + tl.load(region_of_patch + branch * patches + patch)
        row_entropy = tl.load(entropy + region * supports + j, mask=real, other=0.0)
        centre_distance = _relative(spread, magnitude, _rms(centre, dim, SMALLEST_RMS), dim, SMALLEST_RMS)
        cosine_distance = 1.0 - _cosine((size + centre - spread) * 0.5, size, centre, SMALLEST_NORM)
        question_cosine = tl.zeros((KB,), tl.float32)
        if ASKED:
            question_cosine = _cosine(
                tl.load(lengths + branch * MOMENTS + 3, mask=real, other=0.0), size, question_square, SMALLEST_NORM
            )
        log_magnitude = tl.log(magnitude / (magnitude_sum / LEVELS))
        branch_position = tl.zeros((KB,), tl.float32) + (2.0 * branch / (LEVELS - 1) - 1.0)
        column = out + branch * (FEATURES // LEVELS)
        tl.store(column, _bounded(change, 0.0, BOUND), mask=real)
        tl.store(column + 1, _bounded(row_entropy, -BOUND, BOUND), mask=real)
        tl.store(column + 2, _bounded(centre_distance, 0.0, BOUND), mask=real)
        tl.store(column + 3, _bounded(cosine_distance, 0.0, 2.0), mask=real)
        tl.store(column + 4, _bounded(question_cosine, -1.0, 1.0), mask=real)
        tl.store(column + 5, _bounded(log_magnitude, -BOUND, BOUND), mask=real)
        tl.store(column + 6, branch_position, mask=real)
    if DECIDE:
        tl.debug_barrier()
        f, h, b = tl.arange(0, FB), tl.arange(0, HB), tl.arange(0, LB)
        known = f < FEATURES
        seen = tl.load(out[:, None] + f[None, :], mask=real[:, None] & known[None, :], other=0.0)
        mean = tl.sum(seen, 1) / FEATURES
        centred = tl.where(known[None, :], seen - mean[:, None], 0.0)
        deviation = tl.sqrt_rn(tl.sum(centred * centred, 1) / FEATURES + EPS)
        gain = tl.load(norm_scale + f, mask=known, other=0.0).to(tl.float32)[None, :]
        shift = tl.load(norm_shift + f, mask=known, other=0.0).to(tl.float32)[None, :]
        seen = centred / deviation[:, None] * gain + shift
        weight = tl.load(
            first + h[None, :] * FEATURES + f[:, None], mask=known[:, None] & (h < HIDDEN)[None, :], other=0.0
        )
        hidden = tl.dot(seen, weight.to(tl.float32), input_precision="tf32x3")
        hidden = gelu(hidden + tl.load(first_bias + h, mask=h < HIDDEN, other=0.0).to(tl.float32)[None, :])
        weight = tl.load(
            second + b[None, :] * HIDDEN + h[:, None], mask=(h < HIDDEN)[:, None] & (b < LEVELS)[None, :], other=0.0
        )
        logits = tl.dot(hidden, weight.to(tl.float32), input_precision="tf32x3")
        bias = tl.load(second_bias + b, mask=b < LEVELS, other=0.0).to(tl.float32)
        logits = (logits + bias[None, :]) / TEMPERATURE
        logits = tl.where((b < LEVELS)[None, :], logits, -float("inf"))
        share = tl.exp(logits - tl.max(logits, 1)[:, None])
        share = share / tl.sum(share, 1)[:, None] * (1.0 - GLOBAL_FLOOR)
        share += tl.where(b == 0, GLOBAL_FLOOR, 0.0)[None, :]
        share += 0.0 * mean[:, None]  # propagates a NaN that the maximum ignored
        tl.store(gates + target[:, None] * LEVELS + b[None, :], share, mask=real[:, None] & (b < LEVELS)[None, :])
