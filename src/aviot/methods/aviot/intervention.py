"""What another question changes: the supplement's two distances between compressions of one video."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.agreement import jensen_shannon


def allocation_distance(first: Sequence[int], second: Sequence[int]) -> float:
    """|a - b|_1 of two allocations over the same segments, each over its sum: from 0 to 2.

    Half of it is the share of the stage's budget that went to other segments. The supplement takes the first stage's.
    """
    if len(first) != len(second):
        raise ValueError(f"allocations must be over the same segments, got {len(first)} and {len(second)} of them")
    if not sum(first) or not sum(second):
        raise ValueError(f"an allocation must hold a support, got {list(first)} and {list(second)}")
    return sum(abs(a / sum(first) - b / sum(second)) for a, b in zip(first, second, strict=True))


def temporal_divergence(first: Float[Tensor, "K T"], second: Float[Tensor, "K2 T"]) -> float:
    """Jensen-Shannon divergence, 0 to 1 bit, of where in time two sets of supports come from.

    Each set is `provenance.frames()`: the mean of its rows, every one a distribution over the video's frames.
    """
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(f"both must be over the same frames, got {first.shape[-1]} and {second.shape[-1]} of them")
    return float(jensen_shannon(*(_over_time(rows) for rows in (first, second))))


def _over_time(rows: Float[Tensor, "K T"]) -> Float[Tensor, "T"]:
    rows = rows.to(torch.float64)
    return (rows / rows.sum(-1, keepdim=True)).mean(0)
