"""The seven statistics a branch shows to the gate, at every support and position."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.compressor.level import Plan
from aviot.ot import plogp

PER_BRANCH = 7
BOUND = 5.0  # of relative distances, of log magnitudes, and of the whole vector
# Branch values held at a time: what a CPU's cache holds, and what keeps an accelerator busy.
CPU_ELEMENTS = 2**21
ACCELERATOR_ELEMENTS = 2**25
_SMALLEST_RMS = 1e-6
_SMALLEST_NORM = 1e-8


@torch.no_grad()
def gate_statistics(
    x: Float[Tensor, "B N S D"], plans: Sequence[Plan], question: Float[Tensor, "B D"] | None
) -> Float[Tensor, "B S K features"]:
    """The statistics of Y = A X for all granularities, without gradient.

    Positions are independent of each other, so they are taken a few at a time: the branches themselves, three times
    the size of the output, never exist as a whole.
    """
    batch, sources, patches, dim = x.shape
    elements = CPU_ELEMENTS if x.device.type == "cpu" else ACCELERATOR_ELEMENTS
    few = max(1, elements // (batch * len(plans) * plans[0].supports.shape[2] * dim))
    conditionals = [plan.conditional.to(x.dtype) for plan in plans]  # [B,R,K,N] each
    entropies = [-plogp(conditional).sum(-1) / math.log(max(2, sources)) for conditional in conditionals]
    taken = []
    for first in range(0, patches, few):
        regions = [plan.region_of_patch[first : first + few] for plan in plans]
        here = torch.stack([a[:, r] for a, r in zip(conditionals, regions, strict=True)], 1)  # [B,L,S,K,N]
        entropy = torch.stack([h[:, r] for h, r in zip(entropies, regions, strict=True)], 1)
        branches = here @ x[:, :, first : first + few].transpose(1, 2)[:, None]
        taken.append(branch_statistics(branches, entropy, question))
    return torch.cat(taken, 1)


def branch_statistics(
    branches: Float[Tensor, "B L S K D"], entropy: Float[Tensor, "B L S K"], question: Float[Tensor, "B D"] | None
) -> Float[Tensor, "B S K features"]:
    """Branch after branch, seven numbers each, bounded to +-5.

    1 relative change from the previous support (the first takes the second's; zero when alone);
    2 entropy of the support's distribution over log N;
    3, 4 relative distance and cosine distance to the mean of the branches;
    5 cosine to the question (zero without one);
    6 log magnitude relative to the branches' mean magnitude;
    7 which branch this is, from -1 (coarsest) to 1 (finest).
    """
    centre = branches.mean(1, keepdim=True)
    size = rms(branches)
    change = relative_rms(branches[..., 1:, :], branches[..., :-1, :])
    change = torch.cat((change[..., :1], change), -1) if branches.shape[-2] > 1 else torch.zeros_like(size)
    identity = torch.linspace(-1, 1, branches.shape[1], device=size.device, dtype=size.dtype)
    columns = (
        change,
        entropy,
        relative_rms(branches, centre),
        (1 - cosine(branches, centre)).clamp(0, 2),
        torch.zeros_like(size) if question is None else cosine(branches, question[:, None, None, None, :]).clamp(-1, 1),
        torch.log(size / size.mean(1, keepdim=True)).clamp(-BOUND, BOUND),
        identity[:, None, None].expand_as(size),
    )
    return torch.stack(columns, -1).clamp(-BOUND, BOUND).permute(0, 2, 3, 1, 4).flatten(-2)


def rms(a: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """Root mean square over channels, floored away from zero."""
    return a.square().mean(-1).clamp_min(_SMALLEST_RMS**2).sqrt()


def relative_rms(a: Float[Tensor, "... D"], b: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """rms(a - b) over the mean of the two rms, in [0, 5]."""
    return (rms(a - b) / ((rms(a) + rms(b)) / 2).clamp_min(_SMALLEST_RMS)).clamp(0, BOUND)


def cosine(a: Float[Tensor, "... D"], b: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """Cosine of the angle between a and b; a vector of no length has cosine zero."""
    return torch.cosine_similarity(a, b, dim=-1, eps=_SMALLEST_NORM)
