"""The reference's spatial partitions: regions, parents, neighbours, means; by lists and loops."""

import math

import torch
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
