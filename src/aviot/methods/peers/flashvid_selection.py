"""FlashVID's segments, and the tokens of each frame that are attended to and unlike those already picked."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.peers.chunks import chunk_size

Selection = Literal["attn_div", "attn_div_v2"]
"""The rules of the two integrations: Qwen's, and LLaVA's, which also weighs tokens by the segment's mean."""

ATTENTION_SCALE = 1e6
"""The published factor of the attention; after it, -1 is below every weighted distance."""


def unit_vectors(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Return vectors of length one, in float32 or better; zero vectors stay zero, where the original gets NaN."""
    x = x.to(working_dtype(x.dtype))
    return x / x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def segment_cuts(
    frames: Float[Tensor, "T D"], threshold: float, least: int, *, complementary: bool = True
) -> Int[Tensor, "T-1"]:
    """Return how often the video is cut after each frame but the last, from one vector per frame.

    There are cuts where the cosine to the next frame is below the threshold. If they make fewer than `least` segments
    and cuts are `complementary`, the missing ones are made at the smallest other cosines. As in the original, existing
    cuts then count as a cosine of 1 and can be made twice, which gives an empty segment.
    """
    unit = unit_vectors(frames)
    similarity = (unit[:-1] * unit[1:]).sum(-1)
    cut = similarity < threshold
    if not complementary:
        return cut.long()
    missing = (least - 1 - cut.sum()).clamp_min(0)
    rank = similarity.masked_fill(cut, 1.0).argsort(stable=True).argsort()
    return cut.long() + (rank < missing).long()


def segment_means(frames: Float[Tensor, "T D"], segment: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
    """Return the mean vector of each frame's segment."""
    same = (segment[:, None] == segment).to(frames.dtype)
    return same @ frames / same.sum(1, keepdim=True)


def diverse_tokens(
    x: Float[Tensor, "T N D"],
    attention: Float[Tensor, "T N"],
    means: Float[Tensor, "T D"],
    count: int,
    selection: Selection,
) -> Int[Tensor, "T count"]:
    """Return each frame's attended and mutually different tokens, in ascending order; `means` are the segments' means.

    The distance of token j to a picked token is one minus their cosine, times j's weight: its attention, and for LLaVA
    also its product with the segment's mean. The first token is the one whose second smallest distance is the largest;
    then each next one has the largest smallest distance to those picked before. LLaVA's rule may pick a token again
    where all others have negative weights.
    """
    step = chunk_size(x.shape[1] * max(x.shape[1:]))
    parts = zip(x.split(step), attention.split(step), means.split(step), strict=True)
    picked = [_diverse(tokens, received, mean, count, selection) for tokens, received, mean in parts]
    return torch.cat(picked)


def _diverse(x: Tensor, attention: Tensor, means: Tensor, count: int, selection: Selection) -> Int[Tensor, "T count"]:
    unit, again = unit_vectors(x), selection == "attn_div_v2"
    weight = attention.to(unit) * ATTENTION_SCALE
    if again:
        weight = weight * torch.einsum("tnd,td->tn", x.to(unit), means)
    distance = (1 - unit @ unit.mT) * weight[:, None, :]
    second = distance.topk(min(2, distance.shape[1]), dim=1, largest=False).values[:, -1]
    every, picks = torch.arange(len(x), device=x.device), [second.argmax(1)]
    nearest = torch.full_like(weight, torch.inf)
    for _ in range(count - 1):
        nearest = nearest.minimum(distance[every, picks[-1]])
        if not again:
            nearest[every, picks[-1]] = -1.0
        picks.append(nearest.argmax(1))
    return torch.stack(picks, 1).sort(1).values
