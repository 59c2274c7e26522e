"""What kernels need to know of the partitions, made once for a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.compressor.regions import Partition


@dataclass(frozen=True)
class Tables:
    """What follows from the partitions alone."""

    regions: Int[Tensor, "L S"]  # of every patch at every granularity, counted over all of them
    parents: tuple[Int[Tensor, "R"] | None, ...]  # of every region, counted likewise; None for the whole frame
    codes: Float[Tensor, "regions code"]  # of the regions' places; zero for the whole frame


def tables(partitions: tuple[Partition, ...], bands: int, device: torch.device) -> Tables:
    """Made once for a device, but never inside a graph's capture, where they would be the graph's."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _make_tables(partitions, bands, device)
    return _kept_tables(partitions, bands, device)


def _make_tables(partitions: tuple[Partition, ...], bands: int, device: torch.device) -> Tables:
    offsets = offsets_of(partitions)
    parents: list[Tensor | None] = [None]
    like = torch.empty(0, device=device)
    codes = [like.new_zeros((1, 4 * bands))]
    for depth in range(1, len(partitions)):
        parents.append((partitions[depth].parents(partitions[depth - 1], device) + offsets[depth - 1]).int())
        codes.append(partitions[depth].position_code(bands, like))
    return Tables(patch_regions(partitions, device), tuple(parents), torch.cat(codes))


@lru_cache(maxsize=16)
def _kept_tables(partitions: tuple[Partition, ...], bands: int, device: torch.device) -> Tables:
    with torch.inference_mode(False):
        return _make_tables(partitions, bands, device)


def offsets_of(partitions: Sequence[Partition]) -> list[int]:
    """Each granularity's first region among all."""
    return list(accumulate((each.count for each in partitions[:-1]), initial=0))


def patch_regions(partitions: Sequence[Partition], device: torch.device) -> Int[Tensor, "L S"]:
    """The region that holds each patch at every granularity, counted over all of them, coarse to fine."""
    tables = [
        each.region_of_patch(device) + first for each, first in zip(partitions, offsets_of(partitions), strict=True)
    ]
    return torch.stack(tables).int()
