"""Sparse weighted sums of source tokens, each output token with a number of sources of its own."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.features import TokenMixture

MOST_VALUES = 1 << 28  # of weighted sources in memory at a time, one GiB in float32


@dataclass(frozen=True)
class SparseSums:
    """Output tokens as weighted sums: entry j adds `weight[j]` times source `source[j]` to output `token[j]`.

    Entries are in the order of their outputs. Every output has at least one entry.
    """

    token: Int[Tensor, "e"]
    source: Int[Tensor, "e"]
    weight: Float[Tensor, "e"]
    lengths: Int[Tensor, "n"]  # number of entries of each output

    @classmethod
    def of(cls, token: Int[Tensor, "e"], source: Int[Tensor, "e"], weight: Float[Tensor, "e"], count: int) -> Self:
        """Sort entries by output; `count` is the number of outputs."""
        order = token.argsort(stable=True)
        return cls(token[order], source[order], weight[order], token.bincount(minlength=count))

    def tokens(self, sources: Float[Tensor, "N D"]) -> Float[Tensor, "n D"]:
        """Return the sums, in float32 or better; large ones part by part."""
        dtype = torch.promote_types(sources.dtype, torch.float32)
        parts = -(-len(self.source) * sources.shape[1] // MOST_VALUES)
        if parts <= 1:
            return self._summed(sources, dtype, slice(None), self.lengths)
        share = -(-len(self.lengths) // parts)
        ends = self.lengths.cumsum(0)[share - 1 :: share].tolist()
        done, first = [], 0
        for place, lengths in enumerate(self.lengths.split(share)):
            last = ends[place] if place < len(ends) else len(self.source)
            done.append(self._summed(sources, dtype, slice(first, last), lengths))
            first = last
        return torch.cat(done)

    def _summed(self, sources: Tensor, dtype: torch.dtype, here: slice, lengths: Tensor) -> Float[Tensor, "m D"]:
        weighted = sources[self.source[here]].to(dtype) * self.weight[here, None].to(dtype)
        return torch.segment_reduce(weighted, "sum", lengths=lengths, axis=0, unsafe=True)

    def mixture(self, frames: int, patches: int) -> TokenMixture:
        """Return the sums as a mixture of equally many sources each; unused entries have weight zero."""
        most = int(self.lengths.max()) if len(self.lengths) else 1
        first = self.lengths.cumsum(0) - self.lengths
        place = torch.arange(len(self.token), device=self.token.device) - first[self.token]
        shape = (len(self.lengths), most)
        indices, weights = self.source.new_zeros(shape), self.weight.new_zeros(shape)
        indices[self.token, place] = self.source
        weights[self.token, place] = self.weight
        return TokenMixture(indices, weights, frames, patches)

    def only(self, index: Int[Tensor, "m"]) -> Self:
        """Return the outputs at these indices, in their order."""
        number = self.token.new_full((len(self.lengths),), -1)
        number[index] = torch.arange(len(index), device=index.device)
        token = number[self.token]
        kept = token >= 0
        return type(self).of(token[kept], self.source[kept], self.weight[kept], len(index))
