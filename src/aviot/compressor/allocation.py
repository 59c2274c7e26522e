"""How many supports each segment gets: the pilot's response, the question's relevance, and integers that add up."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.compressor.layout import Layout
from aviot.compressor.numerics import squared_distances
from aviot.compressor.segments import Segments
from aviot.config import Pilot, TransportConfig
from aviot.ot import Coupling, Relaxation, solve

NEGLIGIBLE = 1e-6  # a spread below this is no signal


def pilot_response(
    embedded: Float[Tensor, "B N C"], segments: Segments, epsilon: float, config: TransportConfig, pilot: Pilot
) -> Float[Tensor, "B M"]:
    """g_m, how far a one-support transport of segment m is from drawing on its sources uniformly.

    u = row masses of the pilot coupling, p = u / sum u, g = mean |p - 1/n| (eq:supp_pilot_profile,
    eq:supp_pilot_deviation). With one column the balanced updates make g zero up to (1 - kappa_s)^20, whatever the
    cost: solving in float64 keeps rounding from posing as a signal.
    """
    count = segments.count
    layout = Layout(segments, count, torch.ones(len(embedded), count, dtype=torch.long, device=embedded.device))
    sources = embedded[:, None].double()
    cost = squared_distances(segments.split(sources), layout.pad(layout.take_sources(sources, layout.uniform_sources)))
    relaxation: Relaxation = "damped" if pilot == "balanced" else "relaxed"
    coupling = solve(cost, epsilon, config, source_count=segments.sizes(cost.device), relaxation=relaxation)
    return _departure_from_uniform(coupling, segments)


def _departure_from_uniform(coupling: Coupling, segments: Segments) -> Float[Tensor, "B M"]:
    mass = coupling.source_mass[:, 0]  # [B,M,n]
    profile = mass / mass.sum(-1, keepdim=True)
    sizes = segments.sizes(mass.device).to(mass.dtype)
    departure = (profile - 1 / sizes[:, None]).abs() * segments.mask(mass.device)
    return departure.sum(-1) / sizes


def standardise(signal: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    """N(.): centred, over the population deviation; where that is negligible, over the largest value; else zero."""
    centred = signal - signal.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    largest = centred.abs().amax(-1, keepdim=True)
    scale = torch.where(deviation < NEGLIGIBLE, largest, deviation)
    return torch.where(scale < NEGLIGIBLE, 0.0, centred / scale.clamp_min(NEGLIGIBLE))


def allocation_probabilities(
    response: Float[Tensor, "B M"], relevance: Float[Tensor, "B M"] | None, weight: float, temperature: float
) -> Float[Tensor, "B M"]:
    """pi = softmax((N(g) + alpha_q N(r)) / tau) (eq:supp_allocation_probability)."""
    logits = standardise(response)
    if relevance is not None:
        logits = logits + weight * standardise(relevance)
    return torch.softmax(logits / temperature, -1)


def integer_budgets(probabilities: Float[Tensor, "B M"], sizes: Int[Tensor, "M"], supports: int) -> Int[Tensor, "B M"]:
    """k_m with 1 <= k_m <= size and sum K: one each, the rest by rounded share, then repaired (eq:supp_integer_budget).

    What is short is added one support a visit down the order of falling probability, round robin; what is over is
    taken back the same way up that order. Equal probabilities keep their temporal order.
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
    """Hand out `amount` (at most `most`) one at a time in `order`, again and again, to whoever has capacity left.

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
