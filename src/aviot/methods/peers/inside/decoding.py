"""DyCoke's second stage: while an answer is decoded, late layers see only the visual tokens attended to most."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.inside import InsideMethod
from aviot.methods.reduction import Entering, Reduction


@dataclass(frozen=True)
class Parameters:
    """`layer` is the first that sees fewer tokens, `hidden` the share that it does not see (0.8 in the loader).

    A choice is made when the attention's cosine to that of the token before is below `change`.
    """

    layer: int = 3
    hidden: float = 0.7
    change: float = 0.9


@dataclass
class _Choosing(Reduction):
    parameters: Parameters
    count: int
    latest: Float[Tensor, "n"] | None = None

    def looks(self, layer: int) -> bool:
        """Look in the layer before."""
        return layer == self.parameters.layer - 1

    def sees(self, layer: int, attention: Float[Tensor, "heads n"]) -> Int[Tensor, "k"] | None:
        """Choose if the attention has changed since the token before; otherwise everything is seen."""
        mean, before = attention.float().mean(0), self.latest
        self.latest = mean
        if before is not None and bool(torch.cosine_similarity(mean, before, dim=0) >= self.parameters.change):
            return None
        return mean.topk(self.count).indices


class Choosing(InsideMethod):
    """The second stage of DyCoke (CVPR 2025, arXiv 2411.15024): which tokens layers from 3 on see while decoding.

    The prefill is not reduced, and no token leaves for good: every decoded token chooses again, so the cache stays
    whole, and what the masks hide costs as much time as what they show. The count is the published code's,
    int((n - 1) * (1 - hidden)), and at least one. In that code a token whose attention resembles the last one's sees
    everything, although the paper reads as if the last choice were used again.
    """

    name = "choosing"
    title = "choosing while decoding"

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()

    def start(self, entering: Entering) -> Reduction:
        """Return the state before the first decoded token."""
        p = self.parameters
        entering.check_layer(self.name, p.layer, attention=True)
        if not all(entering.attends[p.layer :]):
            raise ValueError(
                f"method {self.name!r} hides tokens from every layer from {p.layer} on, and this decoder has "
                "linear-attention layers there; choose another"
            )
        share = 1 - p.hidden
        count = int((len(entering) - 1) * share) if entering.limit is None else entering.limit
        return _Choosing(p, min(max(1, count), len(entering)))
