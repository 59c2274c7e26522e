"""FlashVID's second stage: the tokens that the last token attends to most, once, in a late layer."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from aviot.methods.inside import InsideMethod
from aviot.methods.reduction import Entering, Kept, Reduction


@dataclass(frozen=True)
class Parameters:
    """The published defaults: `layer` is the first that reads fewer tokens, `share` the part of them that is left.

    For Qwen3-VL's 36 layers the published values are 28 and 0.1.
    """

    layer: int = 20
    share: float = 0.3


@dataclass
class OnceByAttention(Reduction):
    """Keep `count` tokens from one layer on, by the last token's attention, averaged over heads.

    `keep` takes the hidden states, that attention and the count.
    """

    layer: int
    count: int
    keep: Callable[[Tensor, Tensor, int], Kept]

    def queries(self, layer: int) -> int:
        """Return one, in the layer before."""
        return int(layer == self.layer - 1)

    def before(self, layer: int, hidden: Tensor, attention: Tensor | None) -> Kept | None:
        """Reduce before the layer, once."""
        if layer != self.layer:
            return None
        assert attention is not None  # asked for
        return self.keep(hidden, attention[:, -1].float().mean(0), self.count)


class LatePruning(InsideMethod):
    """The second stage of FlashVID (ICLR 2026, arXiv 2602.08024): FastV's rule before layer 20, ceil(0.3 V) tokens.

    FlashVID's own retention is the mean over layers of both stages, (20 x 1.25 + 8 x 1.25 x 0.3) / 28 = 1 times R.
    """

    name = "late-pruning"
    title = "late pruning"

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()

    def start(self, entering: Entering) -> Reduction:
        """Return the reduction that prunes once."""
        p = self.parameters
        entering.check_layer(self.name, p.layer, attention=True)
        count = math.ceil(len(entering) * p.share) if entering.limit is None else entering.limit
        return OnceByAttention(p.layer, count, lambda _, importance, most: Kept.best(importance, most))
