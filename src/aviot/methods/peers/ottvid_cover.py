"""OTT-Vid's first stage: the tokens that cover a frame, and how much each one covers alone."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def covering_tokens(
    similarity: Float[Tensor, "T N N"], weight: Float[Tensor, "T N"], count: int
) -> Int[Tensor, "T count"]:
    """Return each frame's tokens that greedily cover it best, in ascending order (facility location).

    Token j adds sum_i w_i max(0, S_ij - cover_i), where cover_i is the similarity of i to what was picked before, at
    least zero; of equal ones the first is picked.
    """
    frames, patches = weight.shape
    if count >= patches:
        return torch.arange(patches, device=weight.device).expand(frames, -1)
    cover = torch.zeros_like(weight)
    taken = torch.zeros_like(weight, dtype=torch.bool)
    for _ in range(count):
        gain = torch.bmm(weight[:, None, :], (similarity - cover[:, :, None]).clamp_(min=0))[:, 0]
        best = gain.masked_fill_(taken, -torch.inf).argmax(1, keepdim=True)
        taken = taken.scatter(1, best, True)
        cover = cover.maximum(similarity.gather(2, best[:, None, :].expand(-1, patches, -1))[:, :, 0])
    order = torch.argsort(taken.byte(), dim=1, descending=True, stable=True)
    return order[:, :count]


def known_saliency(saliency: Float[Tensor, "T N"], kept: Int[Tensor, "T K"]) -> Float[Tensor, "T N"]:
    """Return the saliency as the LLaVA program knows it: of tokens that were not kept, the mean of those that were."""
    own = saliency.gather(1, kept)
    return own.mean(1, keepdim=True).expand_as(saliency).scatter(1, kept, own)


def token_mass(
    reach: Float[Tensor, "T N K"], weight: Float[Tensor, "T N"], temperature: float | None
) -> Float[Tensor, "T K"]:
    """Return each kept token's mass: the less coverage is lost without it, the larger.

    A token's contribution is the weighted similarity that its frame would lose if only the second-best token were left
    for what it covers best. Without a temperature all masses are equal.
    """
    frames, _, kept = reach.shape
    if temperature is None:
        return reach.new_full((frames, kept), 1 / kept)
    best, who = reach.max(2)
    second = reach.topk(2, dim=2).values[..., 1] if kept > 1 else torch.zeros_like(best)
    lost = torch.zeros((frames, kept), device=reach.device)
    lost.scatter_add_(1, who, weight * (best - second).clamp(min=0))
    score = lost / (lost.amax(1, keepdim=True) + 1e-8)
    return torch.softmax(-score / temperature, 1)
