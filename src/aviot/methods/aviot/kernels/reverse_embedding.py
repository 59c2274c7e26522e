"""The reverse pass of every granularity's last round, second part: from costs back to lifted sources and supports."""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.reverse_coupling import of_level, own_segment
from aviot.ot.sinkhorn import kernel


@triton.jit
def _normalised(rows, C, c, EPS: tl.constexpr):
    """(rows - mean) / deviation, and 1 / deviation; zero where there is no channel."""
    real = (c < C)[None, :]
    centred = tl.where(real, rows - (tl.sum(tl.where(real, rows, 0.0), 1) / C)[:, None], 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 1) / C + EPS)
    return centred * scale[:, None], scale


@kernel
def place_backward(
    own,
    other,
    grad_cost,
    budgets,
    gain,
    weigh,
    grad_own,
    sums,
    regions,
    frames,
    supports,
    longest,
    full,
    M,
    C,
    SOURCES: tl.constexpr,
    EPS: tl.constexpr,
    MB: tl.constexpr,
    RB: tl.constexpr,
    OB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """The gradient, before the last LayerNorm, of some points of one segment: its sources, or else its supports.

    With a = w LN(y) on this side, b on the other and G the cost's gradient, da = 2 (a sum G - G b), which is the same
    for points taken less one of them; dy is LN's reverse of that. `sums` [programs, 3, C] takes the programs' sums of
    da x^ (x^ the normalised y), da and dy, from which the gradients of w, gain, shift and bias are made.
    """
    region, video, start, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    r, c = tl.program_id(1) * RB + tl.arange(0, RB), tl.arange(0, CB)
    supports_before = region * supports + first
    if SOURCES:
        mine, others, here, there = n, k, region * frames + start, supports_before
    else:
        mine, others, here, there = k, n, supports_before, region * frames + start
    real = (c < C)[None, :]
    present = (r < mine)[:, None] & real
    y = (here + r)[:, None] * C + c[None, :]
    ours, scale = _normalised(tl.load(own + y, mask=present, other=0.0), C, c, EPS)
    weight = tl.load(weigh + video * C + c, mask=c < C, other=0.0) * tl.load(gain + c, mask=c < C, other=0.0)
    pivot = tl.sum(tl.where((r == tl.program_id(1) * RB)[:, None], ours, 0.0), 0)
    grad, weighed = tl.zeros((RB, CB), tl.float32), tl.zeros((RB,), tl.float32)
    for before in range(0, others, OB):
        o = before + tl.arange(0, OB)
        if SOURCES:
            at = (supports_before + o)[None, :] * NB + r[:, None]
        else:
            at = (supports_before + r)[:, None] * NB + o[None, :]
        change = tl.load(grad_cost + at, mask=(r < mine)[:, None] & (o < others)[None, :], other=0.0)
        facing = (o < others)[:, None] & real
        z = (there + o)[:, None] * C + c[None, :]
        theirs, _ = _normalised(tl.load(other + z, mask=facing, other=0.0), C, c, EPS)
        away = tl.where(facing, (theirs - pivot[None, :]) * weight[None, :], 0.0)
        grad -= tl.dot(change, away, input_precision="tf32x3")
        weighed += tl.sum(change, 1)
    grad = 2.0 * (grad + (ours - pivot[None, :]) * weight[None, :] * weighed[:, None])
    grad = tl.where(present, grad, 0.0)
    inner = grad * weight[None, :]
    inner -= (tl.sum(inner, 1) / C)[:, None] + ours * (tl.sum(inner * ours, 1) / C)[:, None]
    inner = tl.where(present, inner * scale[:, None], 0.0)
    tl.store(grad_own + y, inner, mask=present)
    programs = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    at = sums + programs * 3 * C + c
    tl.store(at, tl.sum(grad * ours, 0), mask=c < C)
    tl.store(at + C, tl.sum(grad, 0), mask=c < C)
    tl.store(at + 2 * C, tl.sum(inner, 0), mask=c < C)


@triton.jit
def gelu_slope(x):
    """Phi(x) + x phi(x)."""
    return 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)


@kernel
def lift_backward(
    grad_active,
    pre,
    starts,
    budgets,
    grad_lifted,
    grad_sources,
    sums,
    regions,
    frames,
    supports,
    pitch,
    longest,
    full,
    M,
    C,
    MIXED: tl.constexpr,
    OFFSETS: tl.constexpr,
    LEVELS: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
    CB: tl.constexpr,
):
    """The gradient of a segment's lifted sources: their own, and that of the supports which are mixtures of them.

    `grad_active` and `pre` hold the sources of all regions and then the supports. `grad_lifted` is for W1, which sees
    all of it; `grad_sources` leaves the supports' part out where MIXED is 0: a start of several rounds is cut from its
    sources. `sums` [programs, C] takes the programs' sums over sources and supports.
    """
    region, _, start, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    i, j, c = tl.arange(0, NB), tl.arange(0, KB), tl.program_id(1) * CB + tl.arange(0, CB)
    real = (c < C)[None, :]
    sources = (region * frames + start + i)[:, None] * C + c[None, :]
    support = region * supports + first + j
    behind = (tl.num_programs(0) // M).to(tl.int64) * frames * C
    moved = behind + support[:, None] * C + c[None, :]
    present, there = (i < n)[:, None] & real, (j < k)[:, None] & real
    own = tl.load(grad_active + sources, mask=present, other=0.0)
    own *= gelu_slope(tl.load(pre + sources, mask=present, other=0.0))
    theirs = tl.load(grad_active + moved, mask=there, other=0.0)
    theirs *= gelu_slope(tl.load(pre + moved, mask=there, other=0.0))
    used = (i < n)[:, None] & (j < k)[None, :]
    mixture = tl.load(starts + support[None, :] * pitch + i[:, None], mask=used, other=0.0)
    spread = tl.dot(mixture, theirs, input_precision="tf32x3")
    tl.store(grad_lifted + sources, own + spread, mask=present)
    tl.store(grad_sources + sources, own + spread * of_level(region % regions, MIXED, OFFSETS, LEVELS), mask=present)
    total = tl.sum(own, 0) + tl.sum(theirs, 0)
    tl.store(sums + tl.program_id(0).to(tl.int64) * C + c, total, mask=c < C)
