"""How far maps of one frame agree: the supplement's figures for a source frame, an output and its three paths.

A map is what each position of a source frame gave to one output. A path's map is its part of the fused mass,
`provenance.branch(name).mass[output, :, frame]`, so that the paths' maps add up to the fused one.
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

TOP_SHARE = 0.2  # of the positions, which the paper outlines


class Agreement(NamedTuple):
    """Figures of a pair of source frame and output; all but the first two compare the paths' maps two by two."""

    shares: Float[Tensor, "... L"]  # of the fused mass, by path
    mass_in_top: Float[Tensor, "..."]  # share of the fused mass inside the fused map's top 20 %
    centroid_mean: Float[Tensor, "..."]  # distance of mass centres, over the picture's diagonal
    centroid_largest: Float[Tensor, "..."]
    overlap: Float[Tensor, "..."]  # intersection over union of the top 20 %, in the mean
    divergence: Float[Tensor, "..."]  # Jensen-Shannon, in bits, in the mean
    common: Float[Tensor, "..."]  # share of a top 20 % that is in all of them


def agreement(maps: Float[Tensor, "... L S"], grid: tuple[int, int]) -> Agreement:
    """The figures of maps that add up to a fused one; those that compare are nan where there is one path alone."""
    fused, top = maps.sum(-2), top_cells(maps)
    pairs = list(combinations(range(maps.shape[-2]), 2))
    unit, centres = normalised(maps), centroids(maps, grid)
    distances = _over(pairs, lambda a, b: (centres[..., a, :] - centres[..., b, :]).norm(dim=-1) / math.sqrt(2), fused)
    overlaps = _over(pairs, lambda a, b: intersection_over_union(top[..., a, :], top[..., b, :]), fused)
    divergences = _over(pairs, lambda a, b: jensen_shannon(unit[..., a, :], unit[..., b, :]), fused)
    all_of_them = top.all(-2).sum(-1) / top[..., 0, :].sum(-1)
    return Agreement(
        shares=normalised(maps.sum(-1)),
        mass_in_top=mass_inside(fused, top_cells(fused)),
        centroid_mean=distances.mean(0),
        centroid_largest=distances.amax(0),
        overlap=overlaps.mean(0),
        divergence=divergences.mean(0),
        common=all_of_them if pairs else torch.full_like(all_of_them, math.nan),
    )


def _over(
    pairs: list[tuple[int, int]], of_pair: Callable[[int, int], Tensor], like: Float[Tensor, "... S"]
) -> Float[Tensor, "P ..."]:
    values = [of_pair(*pair) for pair in pairs]
    return torch.stack(values) if values else like.new_full((1, *like.shape[:-1]), math.nan)


def top_cells(maps: Float[Tensor, "... S"]) -> Bool[Tensor, "... S"]:
    """The ceil(0.2 S) positions with the largest values; of equal ones, those that come first."""
    count = math.ceil(TOP_SHARE * maps.shape[-1] - 1e-9)  # 0.2 * 55 is a hair above 11
    order = maps.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(maps, dtype=torch.bool).scatter(-1, order, True)


def mass_inside(maps: Float[Tensor, "... S"], cells: Bool[Tensor, "... S"]) -> Float[Tensor, "..."]:
    """Share of a map's mass that lies in some of its cells; zero for a map without mass."""
    return (normalised(maps) * cells).sum(-1)


def centroids(maps: Float[Tensor, "... S"], grid: tuple[int, int]) -> Float[Tensor, "... 2"]:
    """Mass-weighted mean (row, column) of each map, the picture being a unit square; the middle if there is no mass."""
    rows, columns = grid
    down = (torch.arange(rows, device=maps.device, dtype=maps.dtype) + 0.5) / rows
    across = (torch.arange(columns, device=maps.device, dtype=maps.dtype) + 0.5) / columns
    weights = normalised(maps).unflatten(-1, grid)
    centre = torch.stack(((weights.sum(-1) * down).sum(-1), (weights.sum(-2) * across).sum(-1)), -1)
    return torch.where(maps.sum(-1, keepdim=True) > 0, centre, torch.full_like(centre, 0.5))


def intersection_over_union(a: Bool[Tensor, "... S"], b: Bool[Tensor, "... S"]) -> Float[Tensor, "..."]:
    """Cells in both over cells in either."""
    return (a & b).sum(-1) / (a | b).sum(-1)


def jensen_shannon(p: Float[Tensor, "... N"], q: Float[Tensor, "... N"]) -> Float[Tensor, "..."]:
    """Divergence of two distributions from their mean, from 0 (the same) to 1 bit (nothing in common)."""
    p, q = p.double(), q.double()
    mean = (p + q) / 2
    bits = torch.special.entr(mean) - (torch.special.entr(p) + torch.special.entr(q)) / 2
    return bits.sum(-1).clamp_min(0) / math.log(2)


def normalised(values: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """Values over their sum; zeros stay zeros."""
    return values / values.sum(-1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
