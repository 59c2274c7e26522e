"""The solver as printed: one problem, float64, a Python loop over updates; the reference of the fast solvers."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.config import TransportConfig

Cost = Float[Tensor, "N k"]
Coupling = Float[Tensor, "N k"]


def scale_cost(
    cost: Cost,
    epsilon: float,
    bound: float = TransportConfig.cost_bound,
    stabilizer: float = TransportConfig.stabilizer,
) -> Cost:
    """Shrink a cost so that its largest entry stays within `bound` times epsilon.

    C~ = min(1, bound * epsilon / (max C + stabilizer)) * C, the maximum held constant under differentiation.
    cost [N,k] -> [N,k]; eq:supp_cost_stabilization.
    """
    return cost * (bound * epsilon / (cost.detach().max() + stabilizer)).clamp(max=1.0)


def solve(
    cost: Cost,
    epsilon: float,
    *,
    updates: int,
    source_relaxation: float,
    target_relaxation: float,
    relaxed: bool = False,
    bound: float = TransportConfig.cost_bound,
    stabilizer: float = TransportConfig.stabilizer,
) -> Coupling:
    """Couple N sources to k targets, both uniform, by a fixed number of log-domain updates.

    f <- (1 - kappa_s) f + kappa_s T_a(g);  g <- (1 - kappa_t) g + kappa_t T_b(f);  kappa = rho / (rho + epsilon);
    P_ij = exp((f_i + g_j - C~_ij) / epsilon).  `relaxed` drops the memory terms (1 - kappa)(.), which relaxes the
    marginals themselves.
    cost [N,k] -> [N,k]; eq:supp_row_map, eq:supp_col_map, eq:supp_damped_updates, eq:supp_damping_coefficients,
    eq:supp_finite_coupling.
    """
    if cost.ndim != 2 or cost.dtype != torch.float64:
        raise ValueError(f"cost must be [N,k] in float64, got {tuple(cost.shape)} in {cost.dtype}; pass cost.double()")
    n, k = cost.shape
    c = scale_cost(cost, epsilon, bound, stabilizer)
    kappa_s = source_relaxation / (source_relaxation + epsilon)
    kappa_t = target_relaxation / (target_relaxation + epsilon)
    memory_s, memory_t = (0.0, 0.0) if relaxed else (1 - kappa_s, 1 - kappa_t)
    f, g = c.new_zeros(n), c.new_zeros(k)
    for _ in range(updates):
        row_map = -epsilon * math.log(n) - epsilon * torch.logsumexp((g[None, :] - c) / epsilon, dim=1)
        f = memory_s * f + kappa_s * row_map
        column_map = -epsilon * math.log(k) - epsilon * torch.logsumexp((f[:, None] - c) / epsilon, dim=0)
        g = memory_t * g + kappa_t * column_map
    return torch.exp((f[:, None] + g[None, :] - c) / epsilon)


def source_masses(coupling: Coupling) -> Float[Tensor, " N"]:
    """Return the mass that leaves each source, u_i = sum_j P_ij.  [N,k] -> [N]; eq:supp_pilot_profile."""
    return coupling.sum(dim=1)


def target_masses(coupling: Coupling) -> Float[Tensor, " k"]:
    """Return the mass that reaches each target, m_j = sum_i P_ij.  [N,k] -> [k]; eq:supp_column_normalization."""
    return coupling.sum(dim=0)


def conditional(coupling: Coupling) -> Coupling:
    """Return the distributions over sources, A_ij = P_ij / m_j.  [N,k] -> [N,k]; eq:supp_column_normalization."""
    return coupling / target_masses(coupling)


def column_entropy(coupling: Coupling) -> Float[Tensor, " k"]:
    """Return each target's entropy in nats, H_j = -sum_i A_ij log A_ij.  [N,k] -> [k]; sec:supp_spatial."""
    return torch.special.entr(conditional(coupling)).sum(dim=0)


def barycentre(coupling: Coupling, x: Float[Tensor, "N D"], stabilizer: float) -> Float[Tensor, "k D"]:
    """Move each target to the mean of what it receives: z_j = sum_i P_ij x_i / (m_j + stabilizer).

    coupling [N,k], x [N,D] -> [k,D]; eq:supp_barycentric_reconstruction.
    """
    return coupling.T @ x / (target_masses(coupling) + stabilizer)[:, None]
