"""Allocation of supports to segments: the pilot's response, the question's relevance, and integers that add up."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import AllocationConfig, CompressorConfig, Pilot, TransportConfig
from aviot.methods.aviot.numerics import squared_distances
from aviot.methods.aviot.segments import Segments
from aviot.ot import scale_cost

NEGLIGIBLE = 1e-6  # a spread below this counts as zero


def pilot_response(
    embedded: Float[Tensor, "B N C"], segments: Segments, epsilon: float, config: TransportConfig, pilot: Pilot
) -> Float[Tensor, "B M"]:
    """Return g_m, how far a one-support transport of segment m is from drawing on its sources uniformly.

    u = row masses of the pilot coupling, p = u / sum u, g = mean |p - 1/n| (eq:supp_pilot_profile,
    eq:supp_pilot_deviation); the one support is the segment's first source. In float64, so that rounding errors are
    not taken for a signal.
    """
    sources = segments.split(embedded.double())  # [B,M,n,C]
    cost = squared_distances(sources, sources[..., :1, :])
    sizes = segments.sizes(cost.device)
    scaled = scale_cost(cost, epsilon, config, source_count=sizes)[..., 0]
    mask = segments.mask(cost.device)
    logits = (-pilot_memory(epsilon, config, pilot) / epsilon) * scaled
    profile = logits.masked_fill(~mask, -torch.inf).softmax(-1)
    departure = (profile - 1 / sizes.double()[:, None]).abs() * mask
    return departure.sum(-1) / sizes


def pilot_memory(epsilon: float, config: TransportConfig, pilot: Pilot) -> float:
    """Return the share of the cost that is left in the row masses of a one-column solve.

    p = softmax(-memory * C / epsilon).

    With one column, every update of f replaces the share kappa_s of -C by its balance, so after t updates the rows
    still hold (1 - kappa_s)^t C; g only rescales them all. Without the memory term (`"unbalanced"`) each update starts
    again and 1 - kappa_s stays.
    """
    left = epsilon / (config.source_relaxation + epsilon)  # 1 - kappa_s
    return left**config.updates if pilot == "balanced" else left


def evidence_of(relevance: Float[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Return max rho - min rho, how far a question tells the frames of a video apart."""
    return relevance.amax(-1) - relevance.amin(-1)


def where_evident(
    relevance: Float[Tensor, "B T"], evidence: Float[Tensor, "B"], threshold: float
) -> Float[Tensor, "B T"]:
    """Return rho where its evidence reaches the threshold, else zero, which allocates as no relevance does."""
    return torch.where((evidence >= threshold)[:, None], relevance, 0.0)


def running_threshold(threshold: float | None, evidence: Iterable[float], config: AllocationConfig) -> float | None:
    """Return the running quantile of evidence after some more questions, one after the other.

    log theta rises by eta for a question at or above theta and falls by eta (1 - q) / q for one below, which balance
    where the share q is below: steps that fit any scale of cosines. The first positive range is the start. A rate of
    zero keeps a threshold as it is.
    """
    if threshold is not None and not config.evidence_rate:
        return threshold
    up = math.exp(config.evidence_rate)
    down = math.exp(config.evidence_rate * (1 - 1 / config.evidence_quantile))
    for each in evidence:
        if threshold:
            threshold *= up if each >= threshold else down
        elif each > 0:
            threshold = each
    return threshold


def recalibrated(config: CompressorConfig, evidence: Iterable[float]) -> CompressorConfig:
    """Return a config whose threshold has heard of some more questions' evidence."""
    threshold = running_threshold(config.allocation.evidence_threshold, evidence, config.allocation)
    return config.switched(allocation={"evidence_threshold": threshold})


def standardise(signal: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    """Return N(.): centred, over the population deviation; if that is negligible, over the largest value; else zero."""
    centred = signal - signal.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    largest = centred.abs().amax(-1, keepdim=True)
    scale = torch.where(deviation < NEGLIGIBLE, largest, deviation)
    return torch.where(scale < NEGLIGIBLE, 0.0, centred / scale.clamp_min(NEGLIGIBLE))


def allocation_probabilities(
    response: Float[Tensor, "B M"], relevance: Float[Tensor, "B M"] | None, weight: float, temperature: float
) -> Float[Tensor, "B M"]:
    """Return pi = softmax((N(g) + alpha_q N(r)) / tau) (eq:supp_allocation_probability)."""
    logits = standardise(response)
    if relevance is not None:
        logits = logits + weight * standardise(relevance)
    return torch.softmax(logits / temperature, -1)


def integer_budgets(probabilities: Float[Tensor, "B M"], sizes: Int[Tensor, "M"], supports: int) -> Int[Tensor, "B M"]:
    """Return k_m with 1 <= k_m <= size and sum K: one each, the rest by rounded share (eq:supp_integer_budget).

    Missing supports are added one at a time in the order of falling probability, round robin; surplus ones are removed
    in the reverse order. Equal probabilities keep their temporal order.
    """
    probabilities = probabilities.masked_fill(probabilities.isnan(), 0.0)  # reported elsewhere; never an index
    spare = supports - sizes.numel()
    budgets = 1 + torch.minimum(torch.round(probabilities * spare).long(), sizes - 1)
    short = supports - budgets.sum(-1, keepdim=True)
    order = torch.argsort(probabilities, dim=-1, descending=True, stable=True)
    added = round_robin(short.clamp_min(0), sizes - budgets, order, supports)
    removed = round_robin((-short).clamp_min(0), budgets - 1, order.flip(-1), supports)
    return budgets + added - removed


def round_robin(
    amount: Int[Tensor, "B 1"], capacity: Int[Tensor, "B M"], order: Int[Tensor, "B M"], most: int
) -> Int[Tensor, "B M"]:
    """Hand out `amount` (at most `most`) one at a time in `order`, repeatedly, to segments with capacity left.

    After t whole passes m holds min(capacity_m, t); the largest t that the amount covers is read off a table, and the
    remainder goes to the first in order that still have room.
    """
    passes = torch.arange(most + 1, device=capacity.device)
    handed = torch.minimum(capacity[:, None, :], passes[:, None]).sum(-1)  # [B,most+1], after each number of passes
    whole = (handed <= amount).sum(-1, keepdim=True) - 1
    held = torch.minimum(capacity, whole)
    room = (capacity > whole).gather(-1, order)
    last = room & (room.cumsum(-1) <= amount - held.sum(-1, keepdim=True))
    return held + torch.zeros_like(held).scatter(-1, order, last.long())
