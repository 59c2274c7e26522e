"""The reference's objective terms, read off its plans and gates: float64, one video."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aviot.config import CompressorConfig, LevelConfig
from aviot.methods.aviot.reference_regions import adjacent_pairs, region_means


def _log(p: Tensor) -> Tensor:
    """log p, kept finite at p = 0 so that p log p and its gradient are."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def continuity(config: CompressorConfig, level: LevelConfig, x: Tensor, plan: Tensor) -> Tensor:
    """Mean Jensen-Shannon divergence of adjacent regions' plans, weighted by exp(-(1 - cos(mean_r, mean_r')) / 0.2).

    x [N,S,D] (detached), plan [R,K,N] -> 0-d; eq:supp_boundary_weight, eq:supp_continuity.
    """
    first, second = adjacent_pairs(level.regions)
    if not len(first):
        return x.new_zeros(())
    means = region_means(config, level, x).mean(dim=1)  # [R,D], of the features themselves
    distance = 1 - F.cosine_similarity(means[first], means[second], dim=-1)
    weight = torch.exp(-distance / config.objective.continuity_scale)  # [E]
    p, q = plan[first], plan[second]  # [E,K,N]
    log_middle = _log((p + q) / 2)
    divergence = (p * (_log(p) - log_middle) + q * (_log(q) - log_middle)).sum(-1) / 2
    return (weight * divergence.mean(dim=1)).sum() / weight.sum()


def gate_terms(config: CompressorConfig, motion: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Variation, balance and entropy penalties, all zero where there is nothing to choose between.

    motion [S], gamma [K,S,L] -> three 0-d; eq:supp_gate_tv, eq:supp_gate_balance, eq:supp_gate_entropy.
    """
    o, levels, zero = config.objective, gamma.shape[-1], gamma.new_zeros(())
    if levels == 1:
        return zero, zero, zero
    first, second = adjacent_pairs(config.grid)
    v = torch.exp(-(motion[first] - motion[second]).abs() / o.motion_scale)  # [E]
    change = (gamma[:, first] - gamma[:, second]).abs().mean(dim=(0, 2))  # [E]
    mean = gamma.mean(dim=(0, 1))  # [L]
    excess = torch.cat([mean[:1] - o.global_ceiling, o.regional_floor - mean[1:]]).clamp_min(0)
    entropy = -(gamma * _log(gamma)).sum(-1).mean() / math.log(levels)
    variation = (v * change).sum() / v.sum() if len(first) else zero
    return variation, excess.square().mean(), (o.entropy_floor - entropy).clamp_min(0).square()
