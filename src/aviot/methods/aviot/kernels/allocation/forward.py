"""Kernel that decides every segment's budget: one program per video.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import round_half_even
from aviot.ot.sinkhorn import kernel


@triton.jit
def _standardise(signal, real, M, NEGLIGIBLE: tl.constexpr):
    centred = tl.where(real, signal - tl.sum(tl.where(real, signal, 0.0), 0) / M, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred, 0) / M)
    scale = tl.where(deviation < NEGLIGIBLE, tl.max(tl.abs(centred), 0), deviation)
    return tl.where(scale < NEGLIGIBLE, 0.0, centred / tl.maximum(scale, NEGLIGIBLE))


@triton.jit
def _round_robin(amount, capacity, rank, K, KB: tl.constexpr):
    """Hand out `amount` round robin in the order of `rank`, to segments with capacity left."""
    passes = tl.arange(0, KB)
    given_after = tl.sum(tl.minimum(capacity[None, :], passes[:, None]), 1)
    whole = tl.sum(((given_after <= amount) & (passes <= K)).to(tl.int32), 0) - 1
    held = tl.minimum(capacity, whole)
    room = capacity > whole
    place = tl.sum((room[None, :] & (rank[None, :] <= rank[:, None])).to(tl.int32), 1)
    last = room & (place <= amount - tl.sum(held, 0))
    return held + last.to(tl.int32)


@kernel
def allocate_budgets(
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
    """Decide the budgets of all segments of one video."""
    video = tl.program_id(0).to(tl.int64)
    m, i, c = tl.arange(0, MB), tl.arange(0, NB), tl.arange(0, CB)
    real = m < M
    sizes = tl.where(real, longest - (m >= full).to(tl.int32), 0)
    response, mean_relevance = tl.zeros((MB,), tl.float64), tl.zeros((MB,), tl.float64)
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
            relevances = tl.load(relevance + video * frames + start + i, mask=i < n, other=0.0)
            mean_relevance = tl.where(m == segment, tl.sum(relevances, 0) / n, mean_relevance)
        start += n
    logits = _standardise(response, real, M, NEGLIGIBLE)
    if ASKED:
        logits += tl.load(relevance_weight) * _standardise(mean_relevance, real, M, NEGLIGIBLE)
    logits = tl.where(real, logits / tl.load(temperature), -float("inf"))
    share = tl.exp(logits - tl.max(logits, 0))
    share = share / tl.sum(share, 0)
    share = tl.where(share == share, share, 0.0)  # the check of the plans reports it
    given = tl.where(real, 1 + tl.minimum(round_half_even(share * (supports - M)), sizes - 1), 0)
    short = supports - tl.sum(given, 0)
    before = (share[None, :] > share[:, None]) | ((share[None, :] == share[:, None]) & (m[None, :] < m[:, None]))
    rank = tl.sum((before & real[None, :]).to(tl.int32), 1)
    added = _round_robin(tl.maximum(short, 0), tl.where(real, sizes - given, 0), rank, supports, KB)
    removed = _round_robin(tl.maximum(-short, 0), tl.where(real, given - 1, 0), M - 1 - rank, supports, KB)
    tl.store(budgets + video * M + m, (given + added - removed).to(tl.int64), mask=real)
