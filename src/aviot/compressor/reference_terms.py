"""The reference's regions and the objective terms read off its plans and gates: float64, one video."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aviot.config import CompressorConfig, LevelConfig


def patch_regions(grid: tuple[int, int], regions: tuple[int, int]) -> Tensor:
    """r(s), row-major: of p cells over n patches cell i starts at patch ceil(i n / p).  -> [S]; sec:supp_spatial."""
    sides = [[max(i for i in range(p) if i * n <= s * p) for s in range(n)] for n, p in zip(grid, regions, strict=True)]
    return torch.tensor([row * regions[1] + column for row in sides[0] for column in sides[1]])


def parent_regions(coarse: tuple[int, int], fine: tuple[int, int]) -> Tensor:
    """pa(r): the coarse cell that holds each fine cell's centre.  -> [R]; eq:supp_parent_initialization."""
    sides = [[(2 * c + 1) * p // (2 * n) for c in range(n)] for p, n in zip(coarse, fine, strict=True)]
    return torch.tensor([row * coarse[1] + column for row in sides[0] for column in sides[1]])


def adjacent_pairs(cells: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The two ends of every horizontal and vertical edge between cells, row-major.  -> [E], [E]."""
    index = torch.arange(cells[0] * cells[1]).reshape(cells)
    ends = (index[:, :-1], index[:-1]), (index[:, 1:], index[1:])
    first, second = (torch.cat([across.flatten(), down.flatten()]) for across, down in ends)
    return first, second


def region_means(config: CompressorConfig, level: LevelConfig, x: Tensor) -> Tensor:
    """Mean over every region's patches.  x [N,S,D] -> [R,N,D]; eq:supp_region_descriptor, inside the LN."""
    regions = patch_regions(config.grid, level.regions)
    return torch.stack([x[:, regions == r].mean(dim=1) for r in range(math.prod(level.regions))])


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
