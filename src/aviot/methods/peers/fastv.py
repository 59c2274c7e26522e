"""FastV: after the first decoder layers, only the visual tokens that the last token attends to most."""

from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.inside import DecoderMethod
from aviot.methods.reduction import Kept

LAYER, PRUNED = 2, 0.5  # the paper's K and R


def kept_count(visual: int, pruned: float = PRUNED) -> int:
    """Return the number of visual tokens left when a share is pruned; Python's rounding, half to even."""
    return round(visual * (1 - pruned))


def attended(attention: Float[Tensor, "heads n"], count: int) -> Int[Tensor, "count"]:
    """Return the visual tokens with the largest attention, averaged over heads, in ascending order."""
    return Kept.best(attention.float().mean(0), count).index


class FastV(DecoderMethod):
    """FastV (ECCV 2024, arXiv 2403.06764): keep the tokens that the last prompt token attends to most in layer K - 1.

    K is `layer`, 2 by the paper's default. "R" in the paper is the share that is pruned; others quote the share that is
    left in layers K and later. Our budget counts the latter; the layers before K read every token. Selection happens
    once, in the prefill; the first published code, without a cache, selects again for every generated token.
    """

    name = "fastv"
    title = "FastV"
    needs_attention = True

    def __init__(self, layer: int = LAYER) -> None:
        self.layer = layer

    def select(
        self, hidden: Float[Tensor, "n d"], attention: Float[Tensor, "heads n"] | None, count: int
    ) -> Int[Tensor, "count"]:
        """Rank by attention."""
        assert attention is not None  # the method asks for it
        return attended(attention, count)
