"""Density-peaks clustering of tokens: scores of centres, and the assignment of the other tokens to them."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def density_peaks(
    tokens: Float[Tensor, "*B n D"], neighbours: int, mask: Bool[Tensor, "*B n"] | None = None
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n"]]:
    """Return the tokens' distances and each one's score as the centre of a cluster, density times separation.

    Distances are Euclidean over sqrt(D). A token's density is exp(-mean of the squares of its `neighbours` smallest
    distances), its own distance of zero included; its separation is the distance to the nearest denser token, or the
    largest distance of all if there is none. `mask` is True for the tokens that exist; others have score -inf. Where
    there are fewer tokens than neighbours, all of them are neighbours.
    """
    x = tokens.float()
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") / x.shape[-1] ** 0.5
    largest = distances
    if mask is not None:
        present = mask[..., :, None] & mask[..., None, :]
        largest = distances.masked_fill(~present, 0.0)
        distances = distances.masked_fill(~present, torch.inf)
    nearest = distances.topk(min(neighbours, x.shape[-2]), dim=-1, largest=False).values.square()
    finite = nearest.isfinite()
    density = (-nearest.masked_fill(~finite, 0.0).sum(-1) / finite.sum(-1).clamp(min=1)).exp()
    denser = density[..., None, :] > density[..., :, None]
    if mask is not None:
        denser = denser & mask[..., None, :]
    most = largest.amax((-2, -1), keepdim=True)
    score = torch.where(denser, distances, most).amin(-1) * density
    return distances, score if mask is None else score.masked_fill(~mask, -torch.inf)


def cluster(tokens: Float[Tensor, "*B n D"], clusters: int, neighbours: int) -> Int[Tensor, "*B n"]:
    """Return each token's cluster, numbered by the score of its centre, the best first.

    A token belongs to the nearest centre (the better one of equally near ones), a centre to itself.
    """
    distances, score = density_peaks(tokens, neighbours)
    centres = score.argsort(dim=-1, descending=True, stable=True)[..., :clusters]
    index = centres[..., None].expand(*centres.shape, distances.shape[-1])
    labels = distances.gather(-2, index).argmin(-2)
    ranks = torch.arange(clusters, device=labels.device).expand_as(centres)
    return labels.scatter(-1, centres, ranks)
