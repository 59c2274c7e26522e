"""The solver's updates as Triton kernels: one program a problem, its whole matrix on chip.

Scores are bounded by the cost bound, so exp(score) is an ordinary float64: the updates of the log-domain potentials
become products with that one matrix, and only the N + k sums of an update need a logarithm. The reverse pass walks the
recorded potentials backwards with the same matrix. `solver.solve` is the same mathematics in plain torch.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import TransportConfig


def block(count: int) -> int:
    """The power of two that holds `count`, at least the 16 a tensor core's tile needs."""
    return max(16, triton.next_power_of_2(count))


def warps_for(rows: int, columns: int) -> int:
    """So many that a thread holds 32 values of the matrix at most."""
    return min(16, max(4, rows * columns // 1024))


@triton.jit
def update_sources(matrix, v, f, present, log_a, KEEP: tl.constexpr, KAPPA: tl.constexpr):
    """f <- (1 - kappa) f + kappa (log a - log sum_j M_ji v_j), and u = exp f; the matrix is [supports, sources]."""
    total = tl.sum(matrix * v[:, None], 0)
    f = KEEP * f + KAPPA * (log_a - tl.log(tl.where(present, total, 1.0)))
    return f, tl.where(present, tl.exp(f), 0.0)


@triton.jit
def update_supports(matrix, u, g, present, log_b, KEEP: tl.constexpr, KAPPA: tl.constexpr):
    """g <- (1 - kappa) g + kappa (log b - log sum_i M_ji u_i), and v = exp g."""
    total = tl.sum(matrix * u[None, :], 1)
    g = KEEP * g + KAPPA * (log_b - tl.log(tl.where(present, total, 1.0)))
    return g, tl.where(present, tl.exp(g), 0.0)


@triton.jit
def sinkhorn(
    matrix,
    n,
    k,
    KEEP_S: tl.constexpr,
    KAPPA_S: tl.constexpr,
    KEEP_T: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """The damped updates on exp(scores) [supports, sources], zero where absent; returns f, u, g, v."""
    sources, supports = tl.arange(0, NB) < n, tl.arange(0, KB) < k
    log_a, log_b = -tl.log(n.to(tl.float64)), -tl.log(k.to(tl.float64))
    f, g = tl.zeros((NB,), tl.float64), tl.zeros((KB,), tl.float64)
    u, v = f, tl.where(supports, g + 1.0, 0.0)
    for _ in range(UPDATES):
        f, u = update_sources(matrix, v, f, sources, log_a, KEEP_S, KAPPA_S)
        g, v = update_supports(matrix, u, g, supports, log_b, KEEP_T, KAPPA_T)
    return f, u, g, v


@triton.jit
def _forward(
    scores,
    log_plan,
    history_f,
    history_g,
    source_count,
    support_count,
    N,
    K,
    KEEP_S: tl.constexpr,
    KAPPA_S: tl.constexpr,
    KEEP_T: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    RECORD: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """log P = scores + f + g of one problem [N, K]; with RECORD, f and g after every update."""
    problem = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, NB), tl.arange(0, KB)
    n, k = tl.load(source_count + problem), tl.load(support_count + problem)
    inside = (j < K)[:, None] & (i < N)[None, :]
    place = problem * N * K + i[None, :] * K + j[:, None]
    score = tl.load(scores + place, mask=inside, other=0.0).to(tl.float64)
    matrix = tl.where((j < k)[:, None] & (i < n)[None, :], tl.exp(score), 0.0)
    log_a, log_b = -tl.log(n.to(tl.float64)), -tl.log(k.to(tl.float64))
    f, g = tl.zeros((NB,), tl.float64), tl.zeros((KB,), tl.float64)
    v = tl.where(j < k, g + 1.0, 0.0)
    for step in range(UPDATES):
        f, u = update_sources(matrix, v, f, i < n, log_a, KEEP_S, KAPPA_S)
        g, v = update_supports(matrix, u, g, j < k, log_b, KEEP_T, KAPPA_T)
        if RECORD:
            tl.store(history_f + (problem * UPDATES + step) * N + i, f, mask=i < N)
            tl.store(history_g + (problem * UPDATES + step) * K + j, g, mask=j < K)
    tl.store(log_plan + place, score + f[None, :] + g[:, None], mask=inside)


@triton.jit
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
    KEEP_S: tl.constexpr,
    KAPPA_S: tl.constexpr,
    KEEP_T: tl.constexpr,
    KAPPA_T: tl.constexpr,
    UPDATES: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """The gradient of the scores, from that of log P, through the updates in reverse."""
    problem = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, NB), tl.arange(0, KB)
    n, k = tl.load(source_count + problem), tl.load(support_count + problem)
    present = (j < k)[:, None] & (i < n)[None, :]
    place = problem * N * K + i[None, :] * K + j[:, None]
    matrix = tl.where(present, tl.exp(tl.load(scores + place, mask=present, other=0.0).to(tl.float64)), 0.0)
    grad = tl.load(gradient + place, mask=present, other=0.0).to(tl.float64)
    grad_f, grad_g = tl.sum(grad, 0), tl.sum(grad, 1)
    for back in range(UPDATES):
        step = UPDATES - 1 - back
        f = tl.load(history_f + (problem * UPDATES + step) * N + i, mask=i < n, other=0.0)
        u = tl.where(i < n, tl.exp(f), 0.0)
        weight = KAPPA_T * grad_g / tl.where(j < k, tl.sum(matrix * u[None, :], 1), 1.0)
        grad -= matrix * u[None, :] * weight[:, None]
        grad_f -= u * tl.sum(matrix * weight[:, None], 0)
        grad_g = KEEP_T * grad_g
        at = history_g + (problem * UPDATES + step - 1) * K + j
        g = tl.load(at, mask=(j < k) & (step > 0), other=0.0)  # zero before the first update
        v = tl.where(j < k, tl.exp(g), 0.0)
        weight = KAPPA_S * grad_f / tl.where(i < n, tl.sum(matrix * v[:, None], 0), 1.0)
        grad -= matrix * v[:, None] * weight[None, :]
        grad_g -= v * tl.sum(matrix * weight[None, :], 1)
        grad_f = KEEP_S * grad_f
    tl.store(result + place, tl.where(present, grad, 0.0), mask=(j < K)[:, None] & (i < N)[None, :])


def damping(epsilon: float, config: TransportConfig, *, damped: bool = True) -> dict[str, Any]:
    """kappa = rho / (rho + epsilon) on either side and what is kept of the potentials, as kernel constants."""
    kappa_s = config.source_relaxation / (config.source_relaxation + epsilon)
    kappa_t = config.target_relaxation / (config.target_relaxation + epsilon)
    keep_s, keep_t = (1 - kappa_s, 1 - kappa_t) if damped else (0.0, 0.0)
    return {"KEEP_S": keep_s, "KAPPA_S": kappa_s, "KEEP_T": keep_t, "KAPPA_T": kappa_t, "UPDATES": config.updates}


class LogPlan(torch.autograd.Function):
    """log P of every problem from its scores, with the reverse pass as a kernel of its own."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Float[Tensor, "problems N k"],
        source_count: Int[Tensor, "problems"],
        support_count: Int[Tensor, "problems"],
        constants: dict[str, Any],
    ) -> Float[Tensor, "problems N k"]:
        """One program a problem."""
        problems, sources, supports = scores.shape
        log_plan = torch.empty_like(scores)
        record = ctx.needs_input_grad[0]
        steps = constants["UPDATES"] if record else 0
        f = scores.new_empty((problems, steps, sources), dtype=torch.float64)
        g = scores.new_empty((problems, steps, supports), dtype=torch.float64)
        sizes = {"KB": block(supports), "NB": block(sources)}
        ctx.save_for_backward(scores, f, g, source_count, support_count)
        ctx.how = constants | sizes | {"num_warps": warps_for(*sizes.values())}
        _forward[(problems,)](
            scores, log_plan, f, g, source_count, support_count, sources, supports, RECORD=record, **ctx.how
        )
        return log_plan

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """The recorded potentials, walked backwards."""
        scores, f, g, source_count, support_count = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        result = torch.empty_like(scores)
        problems, sources, supports = scores.shape
        _backward[(problems,)](
            scores, gradient, result, f, g, source_count, support_count, sources, supports, **ctx.how
        )
        return result, None, None, None
