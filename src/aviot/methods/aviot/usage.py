"""What a compression made of its freedom: supports moved between segments, outputs taken from granularities."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.provenance import Mixture


class Usage(NamedTuple):
    """One value a video, averaged over stages."""

    shares: dict[str, Tensor]  # of the outputs, by granularity
    budget_entropy: Tensor  # of the segments' shares of the supports, one where they are equal


@torch.no_grad()
def usage_of(stages: Sequence[Mixture]) -> Usage:
    """Read off the records of the executed stages, of which there must be one."""
    shares = {name: torch.stack([stage.shares[name] for stage in stages]).mean(0) for name in stages[0].shares}
    return Usage(shares, torch.stack([budget_entropy(stage.budgets) for stage in stages]).mean(0))


def budget_entropy(budgets: Int[Tensor, "B M"]) -> Float[Tensor, "B"]:
    """-sum_m p_m log p_m / log M with p_m = k_m / K: one where every segment has as many supports, one if M is one."""
    if budgets.shape[1] == 1:
        return torch.ones(len(budgets), device=budgets.device)
    share = budgets.float() / budgets.sum(1, keepdim=True)
    return torch.special.entr(share).sum(1) / math.log(budgets.shape[1])
