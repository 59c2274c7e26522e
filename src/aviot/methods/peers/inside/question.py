"""PruneVid's second stage: in every group of tokens, those that the question attends to most."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.inside import InsideMethod
from aviot.methods.reduction import Entering, Kept, Reduction


@dataclass(frozen=True)
class Parameters:
    """The published defaults: `layer` is the last that reads every token, `share` what is left of each group."""

    layer: int = 10
    share: float = 0.4


def best_of_groups(scores: Float[Tensor, "n"], groups: Int[Tensor, "n"], share: float) -> Int[Tensor, "k"]:
    """Return the best floor(share * size) tokens of every group, in ascending order; at least one token in all."""
    by_score = scores.argsort(descending=True, stable=True)
    order = by_score[groups[by_score].argsort(stable=True)]
    _, number, sizes = groups[order].unique_consecutive(return_inverse=True, return_counts=True)
    rank = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[number]
    kept = order[rank < (sizes.double() * share).floor()[number]]
    return kept.sort().values if len(kept) else by_score[:1]


def groups_of(entering: Entering) -> Int[Tensor, "n"]:
    """Return each visual token's group, by the first and last frame of its sources; structure tokens are one group.

    PruneVid's static tokens of a segment are means over all its frames, and its dynamic tokens lie in one frame each,
    so that these are its groups: the static tokens of each segment, and the dynamic ones of each frame.
    """
    mixture, order = entering.made.mixture, entering.order
    frames, used = mixture.indices // mixture.patches, mixture.weights != 0
    first = torch.where(used, frames, mixture.frames).min(1).values
    last = torch.where(used, frames, -1).max(1).values
    group = (first * mixture.frames + last).to(order.device)
    return torch.where(order < 0, -1, group[order.clamp_min(0)])


@dataclass
class _Pruning(Reduction):
    layer: int
    text: int
    groups: Int[Tensor, "n"]
    share: float

    def queries(self, layer: int) -> int:
        """Return all tokens after the video, in the method's layer."""
        return self.text if layer == self.layer else 0

    def before(self, layer: int, hidden: Tensor, attention: Tensor | None) -> Kept | None:
        """Rank by the largest attention of any head and token of the text."""
        if layer != self.layer + 1:
            return None
        assert attention is not None  # asked for
        scores = attention.float().amax((0, 1))
        return Kept(best_of_groups(scores, self.groups.to(scores.device), self.share), cut=True)


class QuestionPruning(InsideMethod):
    """The second stage of PruneVid (ACL 2025 Findings, arXiv 2412.16117), after layer 10, with 0.4 of each group left.

    The attention is that of all tokens after the video. What is pruned leaves the caches of the first layers too, so
    decoded tokens do not see it anywhere.
    """

    name = "question-pruning"
    title = "question pruning"

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()

    def start(self, entering: Entering) -> Reduction:
        """Return the reduction that prunes once."""
        p = self.parameters
        entering.check_layer(self.name, p.layer + 1, attention=True)
        if not entering.text:
            raise ValueError(f"method {self.name!r} needs text after the video in the prompt, got none")
        share = p.share if entering.limit is None else entering.limit / len(entering)
        return _Pruning(p.layer, entering.text, groups_of(entering), share)
