"""Budgets of every segment in one launch: the pilot's response, the question's relevance, and integers that add up."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import Pilot, TransportConfig
from aviot.methods.aviot.allocation import NEGLIGIBLE, pilot_memory
from aviot.methods.aviot.segments import Segments
from aviot.ot.sinkhorn import block, kernel


@triton.jit
def _standardise(signal, real, M, NEGLIGIBLE: tl.constexpr):
    centred = tl.where(real, signal - tl.sum(tl.where(real, signal, 0.0), 0) / M, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred, 0) / M)
    scale = tl.where(deviation < NEGLIGIBLE, tl.max(tl.abs(centred), 0), deviation)
    return tl.where(scale < NEGLIGIBLE, 0.0, centred / tl.maximum(scale, NEGLIGIBLE))


@triton.jit
def round_half_even(x):
    """The nearest whole number; of two, the even one. For 0 <= x < 2^31 in float64."""
    up = tl.floor(x + 0.5)
    whole = up.to(tl.int32)
    return tl.where((up - x == 0.5) & (whole % 2 == 1), whole - 1, whole)


@triton.jit
def _round_robin(amount, capacity, rank, K, KB: tl.constexpr):
    """One at a time in rank's order, again and again, to whoever has capacity left."""
    passes = tl.arange(0, KB)
    handed = tl.sum(tl.minimum(capacity[None, :], passes[:, None]), 1)
    whole = tl.sum(((handed <= amount) & (passes <= K)).to(tl.int32), 0) - 1
    held = tl.minimum(capacity, whole)
    room = capacity > whole
    place = tl.sum((room[None, :] & (rank[None, :] <= rank[:, None])).to(tl.int32), 1)
    last = room & (place <= amount - tl.sum(held, 0))
    return held + last.to(tl.int32)


@kernel
def _allocate(
    placed,
    relevance,
    relevance_weight,
    temperature,
    budgets,
    regions,
    frames,
    supports,
    longest,
    full,
    M,
    C,
    COST_LIMIT: tl.constexpr,
    STABILIZER: tl.constexpr,
    MEMORY: tl.constexpr,
    NEGLIGIBLE: tl.constexpr,
    ASKED: tl.constexpr,
    MB: tl.constexpr,
    NB: tl.constexpr,
    KB: tl.constexpr,
    CB: tl.constexpr,
):
    """All segments of one video."""
    video = tl.program_id(0).to(tl.int64)
    m, i, c = tl.arange(0, MB), tl.arange(0, NB), tl.arange(0, CB)
    real = m < M
    sizes = tl.where(real, longest - (m >= full).to(tl.int32), 0)
    response, wanted = tl.zeros((MB,), tl.float64), tl.zeros((MB,), tl.float64)
    start = 0
    for segment in range(M):
        n = longest - tl.where(segment >= full, 1, 0)
        first = placed + (video * regions * frames + start) * C
        inside = (i < n)[:, None] & (c < C)[None, :]
        points = tl.load(first + i[:, None] * C + c[None, :], mask=inside, other=0.0)
        away = tl.where(inside, points - tl.load(first + c, mask=c < C, other=0.0)[None, :], 0.0)
        cost = tl.sum(away * away, 1).to(tl.float64)
        scaled = cost * tl.minimum(COST_LIMIT / (tl.max(cost, 0) + STABILIZER), 1.0)
        weight = tl.where(i < n, tl.exp(-MEMORY * scaled), 0.0)
        profile = weight / tl.sum(weight, 0)
        departure = tl.sum(tl.where(i < n, tl.abs(profile - 1.0 / n.to(tl.float64)), 0.0), 0) / n
        response = tl.where(m == segment, departure, response)
        if ASKED:
            heard = tl.load(relevance + video * frames + start + i, mask=i < n, other=0.0)
            wanted = tl.where(m == segment, tl.sum(heard, 0) / n, wanted)
        start += n
    logits = _standardise(response, real, M, NEGLIGIBLE)
    if ASKED:
        logits += tl.load(relevance_weight) * _standardise(wanted, real, M, NEGLIGIBLE)
    logits = tl.where(real, logits / tl.load(temperature), -float("inf"))
    share = tl.exp(logits - tl.max(logits, 0))
    share = share / tl.sum(share, 0)
    share = tl.where(share == share, share, 0.0)  # the plans will show it
    given = tl.where(real, 1 + tl.minimum(round_half_even(share * (supports - M)), sizes - 1), 0)
    short = supports - tl.sum(given, 0)
    before = (share[None, :] > share[:, None]) | ((share[None, :] == share[:, None]) & (m[None, :] < m[:, None]))
    rank = tl.sum((before & real[None, :]).to(tl.int32), 1)
    added = _round_robin(tl.maximum(short, 0), tl.where(real, sizes - given, 0), rank, supports, KB)
    removed = _round_robin(tl.maximum(-short, 0), tl.where(real, given - 1, 0), M - 1 - rank, supports, KB)
    tl.store(budgets + video * M + m, (given + added - removed).to(tl.int64), mask=real)


@dataclass(frozen=True)
class AllocationSettings:
    """The settings of the pilot and of the allocation at one training step."""

    epsilon: float
    transport: TransportConfig
    pilot: Pilot
    relevance_weight: float  # alpha_q
    temperature: float  # tau


def allocate(
    placed: Float[Tensor, "B regions N C"],
    relevance: Float[Tensor, "B N"] | None,
    segments: Segments,
    supports: int,
    settings: AllocationSettings,
) -> Int[Tensor, "B M"]:
    """Return each segment's supports; the first region is the whole frame. NaN still gives budgets that add up."""
    epsilon, config = settings.epsilon, settings.transport
    batch, regions, frames, width = placed.shape
    budgets = torch.empty((batch, segments.count), dtype=torch.long, device=placed.device)
    _allocate[(batch,)](
        placed,
        placed if relevance is None else relevance,
        budgets.new_full((), settings.relevance_weight, dtype=torch.float64),
        budgets.new_full((), settings.temperature, dtype=torch.float64),
        budgets,
        regions,
        frames,
        supports,
        segments.longest,
        segments.full,
        segments.count,
        width,
        COST_LIMIT=config.cost_bound * epsilon,
        STABILIZER=config.stabilizer,
        MEMORY=pilot_memory(epsilon, config, settings.pilot) / epsilon,
        NEGLIGIBLE=NEGLIGIBLE,
        ASKED=relevance is not None,
        MB=block(segments.count),
        NB=block(segments.longest),
        KB=block(supports + 1),
        CB=block(width),
        num_warps=8,
    )
    return budgets
