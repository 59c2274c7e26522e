"""OTT-Vid's transport plans, and how many tokens each pair of frames merges by their cost."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

LOG_DOMAIN_BELOW = 0.05  # the entropic weight below which the updates run on logarithms


def transport(
    cost: Float[Tensor, "P K K"],
    source: Float[Tensor, "P K"],
    target: Float[Tensor, "P K"],
    epsilon: float,
    iterations: int,
) -> Float[Tensor, "P K K"]:
    """Return entropic transport plans after a fixed number of plain Sinkhorn updates, targets first.

    `aviot.ot.solve` serves other problems: uniform measures, relaxed marginals, sources first.
    """
    source = source / source.sum(1, keepdim=True).clamp(min=1e-12)
    target = target / target.sum(1, keepdim=True).clamp(min=1e-12)
    scores = -cost / epsilon
    if epsilon < LOG_DOMAIN_BELOW:
        log_source, log_target = source.clamp(min=1e-30).log(), target.clamp(min=1e-30).log()
        log_u, log_v = torch.zeros_like(source), torch.zeros_like(target)
        for _ in range(iterations):
            log_v = log_target - torch.logsumexp(scores + log_u[:, :, None], 1)
            log_u = log_source - torch.logsumexp(scores + log_v[:, None, :], 2)
        return (log_u[:, :, None] + scores + log_v[:, None, :]).exp()
    kernel = scores.exp()
    u, v = torch.ones_like(source), torch.ones_like(target)
    for _ in range(iterations):
        v = target / torch.einsum("pij,pi->pj", kernel, u).clamp(min=1e-12)
        u = source / torch.einsum("pij,pj->pi", kernel, v).clamp(min=1e-12)
    return u[:, :, None] * kernel * v[:, None, :]


def removal_counts(work: Float[Tensor, "P"], most: int, removed: int, temperature: float) -> Int[Tensor, "P"]:
    """Share out the tokens to remove among pairs of frames: the cheaper the transport, the more, up to `most` each.

    Shares are floored, the missing units go to the largest fractions, and what a full pair cannot take is shared out
    again among the others.
    """
    counts = torch.zeros(len(work), dtype=torch.long)
    left = removed
    while left > 0:
        active = (counts < most).nonzero()[:, 0]
        if not len(active):
            break
        share = torch.softmax(-work[active] / temperature, 0) * left
        given = share.floor().long()
        missing = min(max(left - int(given.sum()), 0), len(active))
        given[torch.argsort(share - given, descending=True, stable=True)[:missing]] += 1
        given = given.minimum(most - counts[active])
        if not int(given.sum()):
            break
        counts[active] += given
        left -= int(given.sum())
    return counts
