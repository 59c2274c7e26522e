"""FrameFusion: merge similar tokens of successive frames in the first decoder layers, then prune by attention once."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.inside import InsideMethod
from aviot.methods.reduction import Entering, Kept, Reduction

FIRST_OF_PATCH = -2.0  # the similarity of a token that has none before it, below every cosine


@dataclass(frozen=True)
class Parameters:
    """The method's parameters, with its published defaults.

    `cost` is the mean share of visual tokens over `layers` layers. Tokens merge from `similarity` on; merging ends when
    it removes less than `least` of the tokens in a layer. Pruning ranks by the attention of the last `queries` tokens
    (published: 1, for Qwen2-VL 4).
    """

    cost: float = 0.3
    similarity: float = 0.6
    least: float = 0.1
    layers: int = 28
    queries: int = 1


def share_to_drop(dropped: list[float], cost: float, layers: int) -> float:
    """Return the share to drop now so that the mean over all layers meets the cost, if nothing is dropped later.

    `dropped` are the shares dropped in each layer so far. Raises ValueError if these layers have used up the cost.
    """
    kept, used = 1.0, 0.0
    for share in dropped:
        kept *= 1 - share
        used += kept
    left = layers * cost - used
    if left < 0:
        raise ValueError(f"{len(dropped)} layers have used {used:g} of a cost of {cost:g} over {layers} layers")
    wanted = left / ((layers - len(dropped)) * kept)
    return 0.0 if wanted > 1 else 1 - wanted


def neighbour_similarity(hidden: Float[Tensor, "n d"], patch: Int[Tensor, "n"]) -> tuple[Tensor, Tensor]:
    """Return the order of tokens by patch and time, and each one's cosine to the one before it in that order."""
    order = patch.argsort(stable=True)
    values, at = hidden[order].float(), patch[order]
    norms = values.norm(dim=1)
    cosine = (values[1:] * values[:-1]).sum(1) / (norms[1:] * norms[:-1])
    similarity = values.new_full((len(order),), FIRST_OF_PATCH)
    similarity[1:] = torch.where(at[1:] == at[:-1], cosine.nan_to_num(FIRST_OF_PATCH), FIRST_OF_PATCH)
    return order, similarity


def merge_runs(order: Int[Tensor, "n"], merges: Int[Tensor, "m"]) -> Kept:
    """Merge tokens at these places of the order into the one before them; runs collapse into their plain mean."""
    leaves = torch.zeros(len(order), dtype=torch.bool, device=order.device)
    leaves[merges] = True
    group = (~leaves).cumsum(0) - 1  # in the order; the first token never leaves
    sizes = torch.bincount(group)
    heads = order[~leaves]
    index, rank = heads.sort()
    into = torch.empty_like(order)
    into[order] = rank.argsort()[group]
    weights = torch.empty(len(order), device=order.device)
    weights[order] = 1 / sizes[group].float()
    return Kept(index, into, weights)


@dataclass
class Fusion(Reduction):
    """The merging and pruning of one prompt; `patch` is each token's place in its frame, tokens come by time."""

    parameters: Parameters
    patch: Int[Tensor, "n"]
    dropped: list[float] = field(default_factory=list)
    merging: bool = True
    pruning: bool = True

    def queries(self, layer: int) -> int:
        """Return the rows that pruning ranks by, in the layer after the last that merges."""
        return self.parameters.queries if self.pruning and not self.merging else 0

    def within(self, layer: int, hidden: Tensor, attention: Tensor | None) -> Kept | None:
        """Merge, or prune, or do nothing any more."""
        if self.merging:
            kept = self._merged(hidden)
        elif self.pruning:
            assert attention is not None  # asked for
            kept = self._pruned(attention)
        else:
            return None
        self.patch = self.patch.to(kept.index.device)[kept.index]
        return kept

    def _merged(self, hidden: Float[Tensor, "n d"]) -> Kept:
        p, count = self.parameters, len(hidden)
        most = share_to_drop(self.dropped, p.cost, p.layers)
        order, similarity = neighbour_similarity(hidden, self.patch.to(hidden.device))
        merges = (similarity >= p.similarity).nonzero()[:, 0]
        share = len(merges) / count
        if share < most and self._affordable(share):
            self.dropped.append(share)
            self.merging = share >= p.least
            return merge_runs(order, merges)
        self.merging = self.pruning = False
        # Among equals the later is first, so that the very first token is the last to be chosen.
        ranked = len(order) - 1 - similarity.flip(0).argsort(descending=True, stable=True)
        return merge_runs(order, ranked[: min(int(most * count), count - 1)])

    def _affordable(self, share: float) -> bool:
        """Return whether later layers can make up for dropping no more; the published code does not look ahead."""
        p, dropped = self.parameters, [*self.dropped, share]
        used, kept = 0.0, 1.0
        for one in dropped:
            kept *= 1 - one
            used += kept
        return used < p.layers * p.cost and len(dropped) < p.layers

    def _pruned(self, attention: Float[Tensor, "heads q n"]) -> Kept:
        p, count = self.parameters, attention.shape[-1]
        self.pruning = False
        drop = share_to_drop(self.dropped, p.cost, p.layers)
        return Kept.best(attention.float().mean((0, 1)), max(1, round(count * (1 - drop))))


def places_in_frame(entering: Entering) -> Int[Tensor, "n"]:
    """Return each visual token's place in its frame; structure tokens are counted per frame, after the patches."""
    order = entering.order
    mixture = entering.made.mixture
    sources = mixture.indices[:, 0].to(order.device)[order.clamp_min(0)]
    is_structure = order < 0
    frame = torch.where(is_structure, 0, sources // mixture.patches).cummax(0).values
    number = is_structure.long().cumsum(0)
    first = torch.searchsorted(frame, frame)  # the frame's first token
    before = number[first] - is_structure[first].long()
    return torch.where(is_structure, mixture.patches + number - before - 1, sources % mixture.patches)


class FrameFusion(InsideMethod):
    """FrameFusion (ICCV 2025, arXiv 2501.01986): merge along time while layers find similar tokens, then prune.

    In every layer, between attention and feed-forward part, tokens merge with the token of the same patch in the frame
    before if their cosine similarity is at least 0.6; a run becomes its plain mean. When a layer merges less than a
    tenth, the next one prunes by the last token's attention. "Token budget" in the paper, and the budget here, is the
    mean over the decoder's layers of the share of visual tokens left: all tokens enter, and fewer are left at the end
    than the budget says. The published code counts 28 layers whatever the model; this counts the decoder's own. Where
    merging alone would exceed a small budget, which stops the published code with an error, the most similar tokens
    are merged at once, as many as the budget needs. Row separators count as patches of their own, as published.
    """

    name = "framefusion"
    title = "FrameFusion"

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()

    def start(self, entering: Entering) -> Reduction:
        """Return the state before the first layer; the budget's share is the cost."""
        if not all(entering.attends):
            raise ValueError(
                f"method {self.name!r} may need the attention of any layer, and this decoder has linear-attention "
                "layers; choose another"
            )
        share = self.parameters.cost if entering.limit is None else entering.limit / len(entering)
        return Fusion(replace(self.parameters, cost=share, layers=entering.layers), places_in_frame(entering))
