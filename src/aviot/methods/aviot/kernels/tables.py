"""What kernels need to know of the partitions, made once for a device."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.kernels.kept import kept
from aviot.methods.aviot.regions import Partition


@dataclass(frozen=True)
class Tables:
    """What follows from the partitions alone."""

    regions: Int[Tensor, "L S"]  # of every patch at every granularity, counted over all of them
    groups: Int[Tensor, "G P"]  # the patches that share their region at every granularity; -1 where a group has fewer
    parents: tuple[Int[Tensor, "R"] | None, ...]  # of every region, counted like `regions`; None for the whole frame
    codes: Float[Tensor, "regions code"]  # of the regions' places; zero for the whole frame


@kept
def tables(partitions: tuple[Partition, ...], bands: int, device: torch.device) -> Tables:
    """All of it for some partitions on a device."""
    offsets = offsets_of(partitions)
    parents: list[Tensor | None] = [None]
    like = torch.empty(0, device=device)
    codes = [like.new_zeros((1, 4 * bands))]
    for depth in range(1, len(partitions)):
        parents.append((partitions[depth].parents(partitions[depth - 1], device) + offsets[depth - 1]).int())
        codes.append(partitions[depth].position_code(bands, like))
    regions = patch_regions(partitions, device)
    return Tables(regions, patch_groups(regions), tuple(parents), torch.cat(codes))


def offsets_of(partitions: Sequence[Partition]) -> list[int]:
    """Each granularity's first region among all."""
    return list(accumulate((each.count for each in partitions[:-1]), initial=0))


def patch_regions(partitions: Sequence[Partition], device: torch.device) -> Int[Tensor, "L S"]:
    """The region that holds each patch at every granularity, counted over all of them, coarse to fine."""
    tables = [
        each.region_of_patch(device) + first for each, first in zip(partitions, offsets_of(partitions), strict=True)
    ]
    return torch.stack(tables).int()


def patch_groups(regions: Int[Tensor, "L S"]) -> Int[Tensor, "G P"]:
    """Patches of equal regions at every granularity side by side, -1 where a group is smaller than the largest."""
    groups = defaultdict(list)
    for patch, places in enumerate(zip(*regions.tolist(), strict=True)):
        groups[places].append(patch)
    largest = max(map(len, groups.values()))
    padded = [members + [-1] * (largest - len(members)) for members in groups.values()]
    return torch.tensor(padded, dtype=torch.int32, device=regions.device)
