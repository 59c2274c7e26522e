"""The solver: damped log-domain updates, batched over problems of different sizes.

Potentials are in units of epsilon (F = f / epsilon, G = g / epsilon), which turns the paper's maps into plain
log-sum-exps of `scores = -scaled cost / epsilon`.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import TransportConfig
from aviot.ot.coupling import Coupling
from aviot.ot.device import LARGEST_ON_CHIP, in_range, on_gpu

Relaxation = Literal["damped", "relaxed"]


def scale_cost(
    cost: Float[Tensor, "... N k"],
    epsilon: float,
    config: TransportConfig,
    *,
    source_count: Int[Tensor, "..."] | None = None,
    support_count: Int[Tensor, "..."] | None = None,
) -> Float[Tensor, "... N k"]:
    """Shrink each problem's cost so that none exceeds `cost_bound` times epsilon (eq:supp_cost_stabilization).

    s = min(1, bound * epsilon / (max C + delta)), one s per problem; the maximum carries no gradient.
    """
    present = cost.detach()
    source_mask, support_mask = _present(source_count, cost, -2), _present(support_count, cost, -1)
    if source_mask is not None:
        present = present.masked_fill(~source_mask[..., :, None], 0.0)
    if support_mask is not None:
        present = present.masked_fill(~support_mask[..., None, :], 0.0)
    scale = config.cost_bound * epsilon / (present.amax((-2, -1), keepdim=True) + config.stabilizer)
    return cost * scale.clamp(max=1.0)


def solve(
    cost: Float[Tensor, "... N k"],
    epsilon: float,
    config: TransportConfig,
    *,
    source_count: Int[Tensor, "..."] | None = None,
    support_count: Int[Tensor, "..."] | None = None,
    relaxation: Relaxation = "damped",
) -> Coupling:
    """Transport the uniform measure on N sources onto the uniform measure on k supports, for every problem at once.

    With kappa = rho / (rho + epsilon) on either side, each of `config.updates` rounds does (eq:supp_damped_updates)

        f <- (1 - kappa_s) f + kappa_s T_a(g)        T_a(g)_i = eps log a_i - eps log sum_j exp((g_j - C_ij) / eps)
        g <- (1 - kappa_t) g + kappa_t T_b(f)        T_b(f)_j = eps log b_j - eps log sum_i exp((f_i - C_ij) / eps)

    and P_ij = exp((f_i + g_j - C_ij) / eps). `"relaxed"` drops the memory terms (1 - kappa), whose fixed point is
    unbalanced transport with marginals penalised by rho_s and rho_t.

    A problem smaller than N x k is padded at its end: the counts (broadcastable to the problems' shape, at least one
    each) are the numbers of its sources and supports. None: all.
    """
    source_mask, support_mask = _present(source_count, cost, -2), _present(support_count, cost, -1)
    scores = scale_cost(cost, epsilon, config, source_count=source_count, support_count=support_count) / -epsilon
    damped = relaxation == "damped"
    if damped and kernels_serve(cost, epsilon, config):
        log_plan = _kernel_updates(scores, epsilon, config, source_count, support_count)
    else:
        log_plan = _updates(scores, epsilon, config, source_count, support_count, damped)
    return Coupling(log_plan, source_mask, support_mask)


def kernels_serve(cost: Float[Tensor, "... N k"], epsilon: float, config: TransportConfig) -> bool:
    """Return True if the problems can be solved on chip: on a GPU, small enough, and with plans that stay in range."""
    return on_gpu(cost) and max(cost.shape[-2:]) <= LARGEST_ON_CHIP and in_range(epsilon, config)


def _kernel_updates(
    scores: Float[Tensor, "... N k"],
    epsilon: float,
    config: TransportConfig,
    source_count: Int[Tensor, "..."] | None,
    support_count: Int[Tensor, "..."] | None,
) -> Float[Tensor, "... N k"]:
    from aviot.ot.sinkhorn import LogPlan, damping

    shape = scores.shape[:-2]
    counts = [
        torch.full(shape, size, device=scores.device) if count is None else count.expand(shape)
        for count, size in zip((source_count, support_count), scores.shape[-2:], strict=True)
    ]
    flat = (count.flatten().long().contiguous() for count in counts)
    problems = scores.reshape(-1, *scores.shape[-2:]).contiguous()
    return LogPlan.apply(problems, *flat, damping(epsilon, config)).view_as(scores)


def _updates(
    scores: Float[Tensor, "... N k"],
    epsilon: float,
    config: TransportConfig,
    source_count: Int[Tensor, "..."] | None,
    support_count: Int[Tensor, "..."] | None,
    damped: bool,
) -> Float[Tensor, "... N k"]:
    """Run the updates in plain torch, every step in the log domain."""
    kappa_source = config.source_relaxation / (config.source_relaxation + epsilon)
    kappa_target = config.target_relaxation / (config.target_relaxation + epsilon)
    keep_source, keep_target = (1 - kappa_source, 1 - kappa_target) if damped else (0.0, 0.0)
    log_a, absent_sources = _uniform(_present(source_count, scores, -2), scores, -2)
    log_b, absent_supports = _uniform(_present(support_count, scores, -1), scores, -1)

    f = scores.new_zeros(scores.shape[:-1])
    g = scores.new_zeros((*scores.shape[:-2], scores.shape[-1]))
    for _ in range(config.updates):
        outgoing = torch.logsumexp(scores + (g + absent_supports)[..., None, :], -1)
        f = keep_source * f + kappa_source * (log_a - outgoing)
        incoming = torch.logsumexp(scores + (f + absent_sources)[..., :, None], -2)
        g = keep_target * g + kappa_target * (log_b - incoming)
    return scores + f[..., :, None] + g[..., None, :]


def _present(count: Tensor | None, cost: Tensor, axis: int) -> Tensor | None:
    """Return True for the first `count` entries of an axis."""
    if count is None:
        return None
    return torch.arange(cost.shape[axis], device=cost.device) < count[..., None]


def _uniform(mask: Tensor | None, scores: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the log of the uniform weight, and a term that removes absent entries' weight from a potential.

    Absent entries have finite potentials of their own (computed from the present ones); only their influence is
    removed, so no log-sum-exp is empty and no gradient is NaN.
    """
    if mask is None:
        zero = scores.new_zeros(())
        return zero - math.log(scores.shape[axis]), zero
    count = mask.sum(-1, keepdim=True).to(scores.dtype)
    return -torch.log(count), torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
