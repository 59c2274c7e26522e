"""HoliTom's second stage: half of the tokens are folded into the most similar ones of those that stay."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from aviot.methods.inside import InsideMethod
from aviot.methods.peers.inside.attention import OnceByAttention
from aviot.methods.reduction import Entering, Kept, Reduction

CHUNK = 1024  # tokens that are compared with all others at once


@dataclass(frozen=True)
class Parameters:
    """The published defaults: `layer` is the first that reads fewer tokens, `folded` the share that does not stay."""

    layer: int = 18
    folded: float = 0.5


def fold(hidden: Float[Tensor, "n d"], importance: Float[Tensor, "n"], count: int) -> Kept:
    """Keep the `count` most important tokens; the others go, one after another, to their most similar kept token.

    Each time the kept token becomes the mean of itself and the one that it takes up, so later ones weigh more.
    """
    ranked = importance.argsort(descending=True, stable=True)[:count]
    index, rank = ranked.sort()
    stays = torch.zeros(len(hidden), dtype=torch.bool, device=hidden.device)
    stays[index] = True
    leaving = (~stays).nonzero()[:, 0]
    unit = F.normalize(hidden.float(), dim=1)
    best = [(unit[part] @ unit[ranked].T).argmax(1) for part in leaving.split(CHUNK)]
    into = torch.empty_like(importance, dtype=torch.long)
    into[index] = torch.arange(count, device=hidden.device)
    into[leaving] = rank.argsort()[torch.cat(best)] if best else leaving
    return Kept(index, into, _halvings(into, stays))


def _halvings(into: Tensor, stays: Tensor) -> Float[Tensor, "n"]:
    """Return 2^-m for a token that m others are folded into, and 2^-(m - i) for the i-th of these, from i = 0."""
    order = (into * 2 + (~stays).long()).argsort(stable=True)  # by group, the one that stays first
    sizes = torch.bincount(into)
    last = sizes.cumsum(0)[into[order]] - 1
    later = last - torch.arange(len(into), device=into.device)  # how many of the group come after
    folded = sizes[into[order]] - 1
    weights = torch.empty(len(into), device=into.device)
    weights[order] = 0.5 ** torch.where(stays[order], folded, later + 1).float()
    return weights


class Folding(InsideMethod):
    """The inner merge of HoliTom (NeurIPS 2025, arXiv 2505.21334), before layer 18, of half of the tokens.

    HoliTom's own retention ratio counts the tokens that enter; the inner merge is on top of it.
    """

    name = "folding"
    title = "inner merge"

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()

    def start(self, entering: Entering) -> Reduction:
        """Return the reduction that folds once."""
        p, visual = self.parameters, len(entering)
        entering.check_layer(self.name, p.layer, attention=True)
        count = round(visual * (1 - p.folded)) if entering.limit is None else entering.limit
        return OnceByAttention(p.layer, max(1, count), fold)
