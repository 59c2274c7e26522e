"""AOT's second stage: over the frames of a clip, tokens like the first frame's are merged into these."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import normalize

from aviot.methods.peers.aot_transport import transport

NEAR = 1.5  # frames; the cost of a frame i after the first is scaled by 1 - exp(-i^2 / (2 NEAR^2))
TINY = 1e-9
MARGIN = 1e-6  # by which cosines stay inside -1 and 1


class Clips(NamedTuple):
    """Merged clips: tokens with the first frame's before and after, which exist, and the mixtures of the latter.

    `tokens` are those of the first frame, those of the others, and at last the first frame's after merging, L + 1 times
    k of each clip. `shares` are the weights of the clip's L x k tokens in the merged ones.
    """

    tokens: Float[Tensor, "G L+1 k D"]
    exists: Bool[Tensor, "G L+1 k"]
    shares: Float[Tensor, "G k L k"]


def merge_clips(x: Float[Tensor, "G L k D"], exists: Bool[Tensor, "G L k"], kept: float, scale: float = 1.0) -> Clips:
    """Merge all clips, frame after frame, into their first frames' tokens.

    Of each later frame, the share `kept` of the tokens that are transported to no anchor in particular stays. The
    others are added to all anchors by their shares in the plan, times `scale`, and the anchors normalised.
    """
    clips, length, width, _ = x.shape
    anchors, real = x[:, 0], exists[:, 0]
    shares = x.new_zeros(clips, width, length, width)
    shares[:, :, 0] = torch.eye(width, dtype=x.dtype, device=x.device)
    stays = [real]
    for step in range(1, length):
        own, there = x[:, step], exists[:, step]
        plan = transport(_cost(own, anchors, there, real, step), there, real)
        part = plan / plan.sum(2, keepdim=True).clamp_min(TINY)
        stay = _least_certain(part.amax(2), there, kept)
        added = scale * (part * (there & ~stay)[..., None]).mT
        whole = 1 + added.sum(2, keepdim=True)
        anchors = (anchors + added @ own) / whole
        shares[:, :, step] = added
        shares = shares / whole[..., None]
        stays.append(stay)
    merged = real & exists[:, 1].any(1, keepdim=True) if length > 1 else torch.zeros_like(real)
    return Clips(torch.cat((x, anchors[:, None]), 1), torch.stack((*stays, merged), 1), shares)


def _cost(own: Tensor, anchors: Tensor, there: Tensor, real: Tensor, step: int) -> Float[Tensor, "G k k"]:
    """Return the cost of each pair, at least 0; larger for frames further from the first."""
    cosine = (normalize(own, dim=-1) @ normalize(anchors, dim=-1).mT).clamp(-1 + MARGIN, 1 - MARGIN)
    apart = 1 - cosine
    pairs = there[:, :, None] & real[:, None]
    least = apart.masked_fill(~pairs, torch.inf).amin((1, 2), keepdim=True)
    factor = 1 - math.exp(-(step**2) / (2 * NEAR**2 + TINY))
    return ((apart - least) * factor).masked_fill(~pairs, 0.0)


def _least_certain(certainty: Float[Tensor, "G k"], there: Bool[Tensor, "G k"], share: float) -> Bool[Tensor, "G k"]:
    """Return which of a frame's tokens are below the quantile of this share, interpolated linearly in float64."""
    values = certainty.double().masked_fill(~there, torch.inf)
    place = share * (there.sum(1, keepdim=True) - 1).clamp_min(0).double()
    ordered = values.sort(1).values
    low, high = ordered.gather(1, place.floor().long()), ordered.gather(1, place.ceil().long())
    threshold = (low + (high - low) * (place - place.floor())).minimum(high)
    return there & (values < threshold)
