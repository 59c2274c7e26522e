"""The solver's updates as Triton kernels: one program per problem, its whole plan on chip.

A damped update of a potential multiplies the plan: with r the plan's row sums, f + kappa (log a - log r) is the paper's
(1 - kappa) f + kappa T_a(g), so P <- (a / r)^kappa P, and likewise for columns. After one update in the log domain no
entry that matters is out of range, and the rest needs one power per row. The backward pass is as short: a row's update
subtracts kappa times the row's sum of gradients of log P, distributed like the row. The plain-torch reference is
`aviot.ot.solver._updates`; `tests/ot/test_sinkhorn.py` compares the two.
"""

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import TransportConfig

_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
# Kernel arguments that count things and differ from video to video. A kernel is not compiled again where one happens to
# be a multiple of sixteen; strides are specialised by Triton, which reads rows faster where they are.
COUNTS = (
    *("N", "K", "M", "n", "k", "frames", "patches", "regions", "supports", "longest", "full"),
    *("offset", "level_regions", "count", "slots", "members"),
)
kernel = partial(triton.jit, do_not_specialize=COUNTS)


def block(count: int) -> int:
    """Return the least power of two that holds `count`, at least the 16 of a tensor-core tile."""
    return max(16, triton.next_power_of_2(count))


def warps_for(rows: int, columns: int) -> int:
    """Return the fastest number of warps: a thread then holds 16 values of a large matrix."""
    return min(16, max(4, rows * columns // 512))


@triton.jit
def _below_top(values, present, axis: tl.constexpr, DTYPE: tl.constexpr):
    """Return values less the largest present one along an axis, that largest, and log sum exp of the differences."""
    top = tl.max(tl.where(present, values, -float("inf")), axis)
    top = tl.where(top > -float("inf"), top, 0.0)
    below = (values - tl.expand_dims(top, axis)).to(DTYPE)
    top = top.to(DTYPE)
    total = tl.sum(tl.where(present, tl.exp(below), 0.0), axis)
    return below, top, tl.log(tl.where(total > 0, total, 1.0))


@triton.jit
def _log2(x, DTYPE: tl.constexpr):
    """Return log2; in float32 the hardware's, which is within 2^-22."""
    if not (tl.float64 == DTYPE or _INTERPRETED):
        result = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = tl.log2(x)
    return result


@triton.jit
def factor(total, count, present, kappa, DTYPE: tl.constexpr):
    """Return (1 / count / total)^kappa where present."""
    return tl.exp2(-kappa * _log2(tl.where(present, total * count, 1.0), DTYPE)).to(DTYPE)


@triton.jit
def first_update(scores, n, k, kappa_s, kappa_t, DTYPE: tl.constexpr, KB: tl.constexpr, NB: tl.constexpr):
    """Return the plan [supports, sources] after the first update in the log domain, and both potentials.

    Each row's largest score is subtracted first: rounding against a large potential then affects one number per row,
    which later updates correct, and not one per entry, which none would. So scores may be finer than DTYPE.
    """
    sources, supports = tl.arange(0, NB) < n, tl.arange(0, KB) < k
    present = supports[:, None] & sources[None, :]
    log_a, log_b = -tl.log(n.to(tl.float64)).to(DTYPE), -tl.log(k.to(tl.float64)).to(DTYPE)
    below, top, total = _below_top(scores, present, 0, DTYPE)
    f = tl.where(sources, kappa_s * (log_a - top - total), 0.0)
    below, high, total = _below_top(below + (top + f)[None, :], present, 1, DTYPE)
    g = tl.where(supports, kappa_t * (log_b - high - total), 0.0)
    return tl.where(present, tl.exp(below + (high + g)[:, None]), 0.0), f, g


@triton.jit
def sinkhorn(
    scores,
    n,
    k,
    KAPPA_S: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    DTYPE: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """Return the plan [supports, sources] after all damped updates, zero where absent."""
    sources, supports = tl.arange(0, NB) < n, tl.arange(0, KB) < k
    plan, _, _ = first_update(scores, n, k, KAPPA_S, KAPPA_T, DTYPE, KB, NB)
    sources_there, supports_there = n.to(DTYPE), k.to(DTYPE)
    for _ in range(1, UPDATES):
        plan = plan * factor(tl.sum(plan, 0), sources_there, sources, KAPPA_S, DTYPE)[None, :]
        plan = plan * factor(tl.sum(plan, 1), supports_there, supports, KAPPA_T, DTYPE)[:, None]
    return plan


@kernel
def _forward(
    scores,
    log_plan,
    history_f,
    history_g,
    source_count,
    support_count,
    N,
    K,
    KAPPA_S: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    RECORD: tl.constexpr,
    DTYPE: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """Compute log P = scores + f + g of one problem [N, K]; with RECORD, store f and g after every update."""
    problem = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, NB), tl.arange(0, KB)
    n, k = tl.load(source_count + problem), tl.load(support_count + problem)
    inside = (j < K)[:, None] & (i < N)[None, :]
    place = problem * N * K + i[None, :] * K + j[:, None]
    score = tl.load(scores + place, mask=inside, other=0.0).to(tl.float64)
    plan, f, g = first_update(score, n, k, KAPPA_S, KAPPA_T, DTYPE, KB, NB)
    f, g = f.to(tl.float64), g.to(tl.float64)
    sources_there, supports_there = n.to(DTYPE), k.to(DTYPE)
    for step in range(UPDATES):
        if step > 0:
            change = factor(tl.sum(plan, 0), sources_there, i < n, KAPPA_S, DTYPE)
            plan = plan * change[None, :]
            f += tl.log(change).to(tl.float64)
            change = factor(tl.sum(plan, 1), supports_there, j < k, KAPPA_T, DTYPE)
            plan = plan * change[:, None]
            g += tl.log(change).to(tl.float64)
        if RECORD:
            tl.store(history_f + (problem * UPDATES + step) * N + i, f, mask=i < N)
            tl.store(history_g + (problem * (UPDATES + 1) + step + 1) * K + j, g, mask=j < K)
    tl.store(log_plan + place, score + f[None, :] + g[:, None], mask=inside)


@kernel
def _backward(
    scores,
    gradient,
    result,
    history_f,
    history_g,
    source_count,
    support_count,
    N,
    K,
    KAPPA_S: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    DTYPE: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """Compute the gradient of the scores from that of log P, through the updates in reverse."""
    problem = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, NB), tl.arange(0, KB)
    n, k = tl.load(source_count + problem), tl.load(support_count + problem)
    present = (j < k)[:, None] & (i < n)[None, :]
    place = problem * N * K + i[None, :] * K + j[:, None]
    score = tl.load(scores + place, mask=present, other=0.0).to(tl.float64)
    grad = tl.load(gradient + place, mask=present, other=0.0).to(DTYPE)
    for back in range(UPDATES):
        step = UPDATES - 1 - back
        f = tl.load(history_f + (problem * UPDATES + step) * N + i, mask=i < n, other=0.0)
        before = history_g + (problem * (UPDATES + 1) + step) * K + j  # zero before the first update
        g = tl.load(before + K, mask=j < k, other=0.0)
        plan = tl.where(present, tl.exp((score + f[None, :] + g[:, None]).to(DTYPE)), 0.0)
        total = tl.where(j < k, tl.sum(plan, 1), 1.0)
        grad -= plan * (KAPPA_T * tl.sum(grad, 1) / total)[:, None]
        g = tl.load(before, mask=j < k, other=0.0)
        plan = tl.where(present, tl.exp((score + f[None, :] + g[:, None]).to(DTYPE)), 0.0)
        total = tl.where(i < n, tl.sum(plan, 0), 1.0)
        grad -= plan * (KAPPA_S * tl.sum(grad, 0) / total)[None, :]
    tl.store(result + place, tl.where(present, grad, 0.0), mask=(j < K)[:, None] & (i < N)[None, :])


def damping(epsilon: float, config: TransportConfig) -> dict[str, Any]:
    """Return kappa = rho / (rho + epsilon) on either side, as kernel constants."""
    kappa_s = config.source_relaxation / (config.source_relaxation + epsilon)
    kappa_t = config.target_relaxation / (config.target_relaxation + epsilon)
    return {"KAPPA_S": kappa_s, "KAPPA_T": kappa_t, "UPDATES": config.updates}


class LogPlan(torch.autograd.Function):
    """log P of every problem from its scores, with gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Float[Tensor, "problems N k"],
        source_count: Int[Tensor, "problems"],
        support_count: Int[Tensor, "problems"],
        constants: dict[str, Any],
    ) -> Float[Tensor, "problems N k"]:
        """Launch one program per problem."""
        problems, sources, supports = scores.shape
        log_plan = torch.empty_like(scores)
        record = ctx.needs_input_grad[0]
        steps = constants["UPDATES"] if record else 0
        f = scores.new_empty((problems, steps, sources), dtype=torch.float64)
        g = scores.new_zeros((problems, steps + 1, supports), dtype=torch.float64)
        sizes = {"KB": block(supports), "NB": block(sources)}
        ctx.save_for_backward(scores, f, g, source_count, support_count)
        dtype = tl.float64 if scores.dtype == torch.float64 else tl.float32
        ctx.how = constants | sizes | {"DTYPE": dtype, "num_warps": warps_for(*sizes.values())}
        _forward[(problems,)](
            scores, log_plan, f, g, source_count, support_count, sources, supports, RECORD=record, **ctx.how
        )
        return log_plan

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Differentiate through the recorded potentials."""
        scores, f, g, source_count, support_count = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        result = torch.empty_like(scores)
        problems, sources, supports = scores.shape
        _backward[(problems,)](
            scores, gradient, result, f, g, source_count, support_count, sources, supports, **ctx.how
        )
        return result, None, None, None
