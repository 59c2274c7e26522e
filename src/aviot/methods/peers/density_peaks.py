"""Density peaks: tokens that are dense among their neighbours and far from denser ones, as centres of clusters."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SAME = 1e-13
"""Squared distance over squared norms below which points are equal: relative differences of 3e-7."""


def density_peaks(
    tokens: Float[Tensor, "*B n D"],
    neighbours: int | Int[Tensor, "*B"],
    mask: Bool[Tensor, "*B n"] | None = None,
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n"]]:
    """Return pairwise distances in float32 or better, and each token's score as a centre in float64.

    A distance d_ij is Euclidean over sqrt(D). The density of i is exp(-mean of its smallest d_ij^2), over as many
    `neighbours` as given, itself included (one number for all, or one per set of tokens). The score is the density
    times the distance to the nearest denser token; the largest distance of all if there is no denser one. The
    originals add random noise below 1e-6 to the density; this function does not. Of masked tokens (False) the score is
    minus infinity and distances are infinite.
    """
    d = pairwise_distances(tokens) / tokens.shape[-1] ** 0.5
    if mask is not None:
        d = d.masked_fill(~(mask[..., :, None] & mask[..., None, :]), torch.inf)
    largest = d.masked_fill(d == torch.inf, 0).amax((-2, -1))[..., None]
    density = _density(d, neighbours)
    denser = density[..., None, :] > density[..., :, None]
    if mask is not None:
        denser &= mask[..., None, :]
    nearest = d.masked_fill(~denser, torch.inf).amin(-1)
    score = torch.where(denser.any(-1), nearest, largest) * density
    return d, score if mask is None else score.masked_fill(~mask, -torch.inf)


def pairwise_distances(tokens: Float[Tensor, "*B n D"]) -> Float[Tensor, "*B n n"]:
    """Return Euclidean distances of all pairs, in float32 or better; symmetric, and exactly 0 for equal tokens.

    |a|^2 + |b|^2 - 2 ab in float64, of which a product takes much less time than direct differences in float32, and
    which is no less exact: what it loses where points nearly coincide is below the rounding of float32 points.
    """
    x = tokens.double()
    products = x @ x.mT
    squares = products.diagonal(dim1=-2, dim2=-1)
    both = squares[..., :, None] + squares[..., None, :]
    apart = both - (products + products.mT)  # as far from a to b as from b to a: densities of mutual neighbours tie
    apart = apart.masked_fill_(apart <= SAME * both, 0.0)
    return apart.sqrt_().to(torch.promote_types(tokens.dtype, torch.float32))


def _density(d: Float[Tensor, "*B n n"], neighbours: int | Int[Tensor, "*B"]) -> Float[Tensor, "*B n"]:
    """Return densities in float64.

    Where tokens are close, densities are just below one. In float32, which has steps of 6e-8 there, neighbours would
    tie, and which of them is denser would depend on how a device rounds its exponential function.
    """
    count = torch.as_tensor(neighbours, device=d.device)[..., None, None]
    most = min(int(count.max()), d.shape[-1])
    squares = d.topk(most, dim=-1, largest=False).values.square()
    used = torch.arange(most, device=d.device) < count
    near = squares.masked_fill(~used, 0).sum(-1) / used.sum(-1)
    return torch.exp(-near.double())


def cluster(
    tokens: Float[Tensor, "*B n D"],
    clusters: int | Int[Tensor, "*B"],
    neighbours: int | Int[Tensor, "*B"],
    mask: Bool[Tensor, "*B n"] | None = None,
) -> tuple[Int[Tensor, "*B n"], Bool[Tensor, "*B n"]]:
    """Return each token's cluster, numbered by the score of its centre, the best first, and which tokens are centres.

    A token belongs to the nearest centre (the better one of equally near ones), a centre to itself. `clusters` is one
    number for all sets or one per set, at most the number of tokens. Masked tokens (False) have no meaningful cluster.
    """
    distances, score = density_peaks(tokens, neighbours, mask)
    order = score.argsort(dim=-1, descending=True, stable=True)
    count = torch.as_tensor(clusters, device=order.device)[..., None]
    rank = order.argsort(dim=-1)
    most = int(count.max())
    centres = order[..., :most]
    rows = centres[..., None].expand(*centres.shape, distances.shape[-1])
    missing = torch.arange(most, device=order.device) >= count
    near = distances.gather(-2, rows).masked_fill(missing[..., None], torch.inf)
    chosen = rank < count
    return torch.where(chosen, rank, near.argmin(-2)), chosen


def ranks(score: Float[Tensor, "*B n"]) -> Int[Tensor, "*B n"]:
    """Return each token's place in descending order of score; among equal scores the first token is first."""
    return score.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
