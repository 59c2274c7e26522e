"""ToMe: bipartite merging, each round between every other token and its most similar partner."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.merged import Sources, merged

Arrangement = Literal["raster", "frames"]
"""Order before the first round: flat indices, or tokens of even frames and of odd frames by turns."""


class Merged(NamedTuple):
    """Merged tokens, how many tokens each is the mean of, and the merged token of every source token."""

    tokens: Float[Tensor, "m D"]
    sizes: Float[Tensor, "m"]
    membership: Int[Tensor, "n"]


def best_partners(a: Float[Tensor, "p D"], b: Float[Tensor, "q D"]) -> tuple[Float[Tensor, "p"], Int[Tensor, "p"]]:
    """Return each token's largest cosine to another set, and the first token that has it; 0 with zero vectors."""
    units = [x / x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny) for x in (a, b)]
    found = [(part @ units[1].T).max(1) for part in units[0].split(chunk_size(len(b)))]
    return torch.cat([each.values for each in found]), torch.cat([each.indices for each in found])


def merge_round(tokens: Float[Tensor, "n D"], sizes: Float[Tensor, "n"], removed: int) -> Merged:
    """Merge the `removed` even-numbered tokens with the most similar partner into their odd-numbered partners.

    At most half of the tokens, rounded down, can be removed. The other even-numbered tokens come first, by descending
    similarity, then the odd-numbered ones.
    """
    count, device = len(tokens), tokens.device
    removed = min(removed, count // 2)
    if removed <= 0:
        return Merged(tokens, sizes, torch.arange(count, device=device))
    score, partner = best_partners(tokens[::2], tokens[1::2])
    order = score.argsort(descending=True, stable=True)
    merged, alone = order[:removed], order[removed:]
    row = torch.empty(count, dtype=torch.long, device=device)
    row[2 * alone] = torch.arange(len(alone), device=device)
    row[1::2] = len(alone) + torch.arange(count // 2, device=device)
    row[2 * merged] = len(alone) + partner[merged]
    total = sizes.new_zeros(count - removed).index_add_(0, row, sizes)
    sums = torch.zeros_like(tokens[: count - removed]).index_add_(0, row, tokens * sizes[:, None])
    return Merged(sums / total[:, None], total, row)


def arranged(frames: int, patches: int, arrangement: Arrangement) -> Int[Tensor, "T*N"]:
    """Return the flat indices of the tokens in the order of the first round."""
    every = torch.arange(frames * patches)
    if arrangement == "raster":
        return every
    if arrangement != "frames":
        raise ValueError(f"arrangement must be 'raster' or 'frames', got {arrangement!r}")
    if frames % 2:
        raise ValueError(f"arrangement 'frames' needs an even number of frames, got {frames}; use 'raster'")
    even, odd = (every.view(frames, patches)[first::2].flatten() for first in (0, 1))
    return torch.stack((even, odd), 1).flatten()


def tome(x: Float[Tensor, "T N D"], rounds: Sequence[int], arrangement: Arrangement = "raster") -> Merged:
    """Merge tokens in several rounds, each of which removes a given number of them."""
    order = arranged(len(x), x.shape[1], arrangement).to(x.device)
    tokens = x.flatten(0, 1)[order].to(working_dtype(x.dtype))
    sizes, row = tokens.new_ones(len(tokens)), torch.arange(len(tokens), device=x.device)
    for removed in rounds:
        tokens, sizes, rows = merge_round(tokens, sizes, removed)
        row = rows[row]
    return Merged(tokens, sizes, torch.empty_like(row).scatter_(0, order, row))


def rounds_to(count: int, limit: int) -> list[int]:
    """Return how many tokens each round removes, of `count` tokens, until `limit` are left.

    There are as few rounds as halving allows, and each removes about the same share.
    """
    removed = []
    while count > limit:
        left = math.ceil(math.log2(count / limit))
        left += count > limit << left  # the logarithm was rounded down
        next_count = max(math.ceil(count * (limit / count) ** (1 / left)), limit, count - count // 2)
        next_count = min(next_count, limit << (left - 1)) if left > 1 else limit
        removed.append(count - next_count)
        count = next_count
    return removed


class ToMe(BudgetedMethod):
    """ToMe: token merging (ICLR 2023, 2210.09461), here over all tokens of a video.

    Each round splits the tokens into two halves by turns, and merges those of the first half that have the most
    similar partners into these, as means weighted by size. The original merges inside the layers of an image encoder
    and has no program for video; this arrangement, on projected tokens in flat order with the tokens themselves as
    metric, is ours. A merged token stands at the mean position of its members, since none is published.

    Retention is the share of tokens left. A round removes at most half, so there are as few rounds as needed, each
    removing about the same share; the count is exact. Unlike the original, zero vectors have cosine 0 instead of NaN.
    """

    name = "tome"
    title = "ToMe"
    replayable = False  # the order of the first round is copied from the CPU

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Merge until as many tokens are left as the limit."""
        total = video.frames * video.patches
        made = tome(video.features, rounds_to(total, limit))
        sources = torch.arange(total, device=made.membership.device)
        weights = (1 / made.sizes)[made.membership]
        return merged(video, Sources(made.membership, sources, weights), made.tokens.to(video.features.dtype))
