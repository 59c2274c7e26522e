"""Figures of finished compressions, from the supplement: usage, agreement of maps, distances of two compressions.

A map holds the mass that each position of a source frame gave to one output. A branch's map is its part of the fused
mass, `provenance.branch(name).mass[output, :, frame]`, so the branches' maps add up to the fused one.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.aviot.provenance import Mixture

TOP_SHARE = 0.2  # of the positions: those that the paper outlines


class Usage(NamedTuple):
    """The use of budgets and granularities: one value per video, averaged over stages."""

    shares: dict[str, Tensor]  # of the outputs, by granularity
    budget_entropy: Tensor  # of the segments' shares of the supports, one where they are equal


@torch.no_grad()
def usage_of(stages: Sequence[Mixture]) -> Usage:
    """Return the usage of the executed stages, at least one."""
    shares = {name: torch.stack([stage.shares[name] for stage in stages]).mean(0) for name in stages[0].shares}
    return Usage(shares, torch.stack([budget_entropy(stage.budgets) for stage in stages]).mean(0))


def budget_entropy(budgets: Int[Tensor, "B M"]) -> Float[Tensor, "B"]:
    """Return -sum_m p_m log p_m / log M with p_m = k_m / K: one for equal budgets, and one if M is one."""
    if budgets.shape[1] == 1:
        return torch.ones(len(budgets), device=budgets.device)
    share = budgets.float() / budgets.sum(1, keepdim=True)
    return torch.special.entr(share).sum(1) / math.log(budgets.shape[1])


class Agreement(NamedTuple):
    """Figures of one source frame and output; all but the first two compare the branches' maps pairwise."""

    shares: Float[Tensor, "... L"]  # of the fused mass, by branch
    mass_in_top: Float[Tensor, "..."]  # share of the fused mass inside the fused map's top 20 %
    centroid_mean: Float[Tensor, "..."]  # distance of centroids, over the image diagonal
    centroid_largest: Float[Tensor, "..."]
    overlap: Float[Tensor, "..."]  # mean intersection over union of the top 20 %
    divergence: Float[Tensor, "..."]  # mean Jensen-Shannon divergence in bits
    common: Float[Tensor, "..."]  # share of a top 20 % that all branches have in common


def agreement(maps: Float[Tensor, "... L S"], grid: tuple[int, int]) -> Agreement:
    """Return the figures of maps that add up to a fused one; comparisons are NaN for a single branch."""
    fused, top = maps.sum(-2), top_cells(maps)
    pairs = list(combinations(range(maps.shape[-2]), 2))
    unit, centres = normalised(maps), centroids(maps, grid)
    distances = _over(pairs, lambda a, b: (centres[..., a, :] - centres[..., b, :]).norm(dim=-1) / math.sqrt(2), fused)
    overlaps = _over(pairs, lambda a, b: intersection_over_union(top[..., a, :], top[..., b, :]), fused)
    divergences = _over(pairs, lambda a, b: jensen_shannon(unit[..., a, :], unit[..., b, :]), fused)
    in_all = top.all(-2).sum(-1) / top[..., 0, :].sum(-1)
    return Agreement(
        shares=normalised(maps.sum(-1)),
        mass_in_top=mass_inside(fused, top_cells(fused)),
        centroid_mean=distances.mean(0),
        centroid_largest=distances.amax(0),
        overlap=overlaps.mean(0),
        divergence=divergences.mean(0),
        common=in_all if pairs else torch.full_like(in_all, math.nan),
    )


def _over(
    pairs: list[tuple[int, int]], of_pair: Callable[[int, int], Tensor], like: Float[Tensor, "... S"]
) -> Float[Tensor, "P ..."]:
    values = [of_pair(*pair) for pair in pairs]
    return torch.stack(values) if values else like.new_full((1, *like.shape[:-1]), math.nan)


def top_cells(maps: Float[Tensor, "... S"]) -> Bool[Tensor, "... S"]:
    """Return True at the ceil(0.2 S) positions with the largest values; of equal ones, at the first."""
    count = math.ceil(TOP_SHARE * maps.shape[-1] - 1e-9)  # 0.2 * 55 is a hair above 11
    order = maps.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(maps, dtype=torch.bool).scatter(-1, order, True)


def mass_inside(maps: Float[Tensor, "... S"], cells: Bool[Tensor, "... S"]) -> Float[Tensor, "..."]:
    """Return the share of a map's mass that lies in some of its cells; zero for a map without mass."""
    return (normalised(maps) * cells).sum(-1)


def centroids(maps: Float[Tensor, "... S"], grid: tuple[int, int]) -> Float[Tensor, "... 2"]:
    """Return the mass-weighted mean (row, column) of each map on a unit square; the middle if there is no mass."""
    rows, columns = grid
    down = (torch.arange(rows, device=maps.device, dtype=maps.dtype) + 0.5) / rows
    across = (torch.arange(columns, device=maps.device, dtype=maps.dtype) + 0.5) / columns
    weights = normalised(maps).unflatten(-1, grid)
    centre = torch.stack(((weights.sum(-1) * down).sum(-1), (weights.sum(-2) * across).sum(-1)), -1)
    return torch.where(maps.sum(-1, keepdim=True) > 0, centre, torch.full_like(centre, 0.5))


def intersection_over_union(a: Bool[Tensor, "... S"], b: Bool[Tensor, "... S"]) -> Float[Tensor, "..."]:
    """Return the number of cells in both over that of cells in either."""
    return (a & b).sum(-1) / (a | b).sum(-1)


def jensen_shannon(p: Float[Tensor, "... N"], q: Float[Tensor, "... N"]) -> Float[Tensor, "..."]:
    """Return the divergence of two distributions from their mean, from 0 (equal) to 1 bit (disjoint)."""
    p, q = p.double(), q.double()
    mean = (p + q) / 2
    bits = torch.special.entr(mean) - (torch.special.entr(p) + torch.special.entr(q)) / 2
    return bits.sum(-1).clamp_min(0) / math.log(2)


def normalised(values: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """Return values over their sum; zeros stay zeros."""
    return values / values.sum(-1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)


def allocation_distance(first: Sequence[int], second: Sequence[int]) -> float:
    """Return |a - b|_1 of two allocations over the same segments, each over its sum: from 0 to 2.

    Half of it is the share of the stage's budget that moved to other segments. The supplement takes the first stage's.
    """
    if len(first) != len(second):
        raise ValueError(f"allocations must be over the same segments, got {len(first)} and {len(second)} of them")
    if not sum(first) or not sum(second):
        raise ValueError(f"an allocation must hold a support, got {list(first)} and {list(second)}")
    return sum(abs(a / sum(first) - b / sum(second)) for a, b in zip(first, second, strict=True))


def temporal_divergence(first: Float[Tensor, "K T"], second: Float[Tensor, "K2 T"]) -> float:
    """Return the Jensen-Shannon divergence, 0 to 1 bit, of two sets of supports' source frames.

    Each set is `provenance.frames()`: the mean of its rows, every one a distribution over the video's frames.
    """
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(f"both must be over the same frames, got {first.shape[-1]} and {second.shape[-1]} of them")
    return float(jensen_shannon(*(_over_time(rows) for rows in (first, second))))


def _over_time(rows: Float[Tensor, "K T"]) -> Float[Tensor, "T"]:
    rows = rows.to(torch.float64)
    return (rows / rows.sum(-1, keepdim=True)).mean(0)
