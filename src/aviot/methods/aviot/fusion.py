"""Fusion: the gate weights the granularities at every support and position, and their plans are mixed."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aviot.config import CompressorConfig, GateConfig
from aviot.methods.aviot.level import LevelPlan
from aviot.methods.aviot.metric import LayerNorm, Linear
from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.aviot.segments import Layout
from aviot.methods.aviot.statistics import PER_BRANCH, branch_moments, gate_statistics
from aviot.ot import plogp

# Values of the sources in memory at a time, or of the plans' rows where those are more (features of few channels): the
# size of a CPU's cache, and enough work for an accelerator.
CPU_ELEMENTS = 2**21
CPU_POSITIONS = 24  # at most: with narrow features more would take memory and save no time
ACCELERATOR_ELEMENTS = 2**25


def build_gate(levels: int, hidden: int) -> nn.Sequential:
    """Return the gate: LayerNorm, then two linear maps from 7 statistics per level to one logit per level."""
    return nn.Sequential(
        LayerNorm(PER_BRANCH * levels), Linear(PER_BRANCH * levels, hidden), nn.GELU(), Linear(hidden, levels)
    )


def gate_weights(
    gate: nn.Sequential, statistics: Float[Tensor, "B S K features"], config: GateConfig
) -> Float[Tensor, "B S K L"]:
    """Return gamma: softmax at temperature tau_g, at least delta_G for the global branch (eq:supp_gate_floor)."""
    logits = gate(statistics)
    share = torch.softmax(logits / config.temperature, -1) * (1 - config.global_floor)
    share = share + 0 * logits  # NaN, which is refused, for an infinite logit, which a softmax hides
    return torch.cat((share[..., :1] + config.global_floor, share[..., 1:]), -1)


def introduce_regions(gates: Float[Tensor, "B S K L"], progress: float) -> Float[Tensor, "B S K L"]:
    """Interpolate with the global branch during the warm-up of the regional ones."""
    if progress == 1.0:
        return gates
    global_only = torch.zeros_like(gates)
    global_only[..., 0] = 1.0
    return progress * gates + (1 - progress) * global_only


def combine(
    rows: Float[Tensor, "B S L K n"], shares: Float[Tensor, "B S K L"], unchanged: Bool[Tensor, "B K"]
) -> Float[Tensor, "B S K n"]:
    """Return B = sum over granularities of gamma * A, the mixture of every output (eq:supp_stage_provenance).

    In an identity segment all granularities agree; taking one is exact (gammas sum to one up to rounding).
    """
    mixed = torch.einsum("bslkn,bskl->bskn", rows, shares)
    return torch.where(unchanged[:, None, :, None], rows[:, :, 0], mixed)


def fuse(
    x: Float[Tensor, "B N S D"],
    plans: Sequence[LevelPlan],
    layout: Layout,
    gate: nn.Sequential,
    config: CompressorConfig,
    question: Float[Tensor, "B D"] | None,
    progress: float,
    *,
    in_place: bool = False,
) -> tuple[Float[Tensor, "B K S D"], Float[Tensor, "B S K L"]]:
    """Return the fused features and gamma as the gate predicts it.

    Positions are independent, so they are processed in chunks: sources are split into segments once, and statistics,
    gate and mixture all read that. Without a gradient, `in_place` writes the features over the first frames of x.
    """
    dtype = working_dtype(x.dtype)
    on_cpu = x.device.type == "cpu"
    elements = CPU_ELEMENTS if on_cpu else ACCELERATOR_ELEMENTS
    few = max(1, elements // (x.shape[0] * x.shape[1] * max(x.shape[3], len(plans) * layout.slots)))
    few = min(few, CPU_POSITIONS) if on_cpu else few
    rows = [plan.rows.to(dtype) for plan in plans]  # [B,R,K,n] each
    entropies = [-plogp(each.detach()).sum(-1) / math.log(max(2, x.shape[1])) for each in rows]
    whole = x[:, : layout.supports] if in_place else None
    if whole is None and not torch.is_grad_enabled():
        whole = x.new_empty((len(x), layout.supports, *x.shape[2:]), dtype=dtype)
    features, gates, of_patch = [], [], [plan.region_of_patch for plan in plans]
    for first in range(0, x.shape[2], few):
        regions = [each[first : first + few] for each in of_patch]
        here = torch.stack([each[:, at] for each, at in zip(rows, regions, strict=True)], 2)  # [B,S,L,K,n]
        entropy = torch.stack([each[:, at] for each, at in zip(entropies, regions, strict=True)], 2)
        sources = x[:, :, first : first + few].transpose(1, 2).to(dtype)
        sources = layout.segments.split(sources).contiguous()  # [B,S,M,n,D]
        shares = _shares(sources, here, entropy, layout, gate, config, question)
        mixture = combine(here, introduce_regions(shares, progress), layout.unchanged)
        fused = layout.pad(mixture) @ sources
        if whole is None:
            features.append(layout.pack(fused).transpose(1, 2))
        else:
            layout.pack_into(whole[:, :, first : first + few].transpose(1, 2), fused)
        gates.append(shares)
    return torch.cat(features, 2) if whole is None else whole, torch.cat(gates, 1)


def _shares(
    sources: Float[Tensor, "B S M n D"],
    rows: Float[Tensor, "B S L K n"],
    entropy: Float[Tensor, "B S L K"],
    layout: Layout,
    gate: nn.Sequential,
    config: CompressorConfig,
    question: Float[Tensor, "B D"] | None,
) -> Float[Tensor, "B S K L"]:
    """Return gamma at some positions: learned, or equal (ablation), or one for a single granularity."""
    batch, patches, levels, supports = entropy.shape
    if levels == 1 or config.fusion == "equal":
        return entropy.new_full((batch, patches, supports, levels), 1 / levels)
    with torch.no_grad():
        padded = layout.pad(rows.flatten(1, 2)).unflatten(1, (patches, levels)).transpose(2, 3)  # [B,S,M,L,k,n]
        moments = branch_moments(sources, padded, layout, question)
        statistics = gate_statistics(moments, entropy, question, sources.shape[-1])
    return gate_weights(gate, statistics, config.gate)
