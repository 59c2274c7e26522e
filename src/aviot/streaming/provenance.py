"""Provenance of a stream's answers: a method's mixture over the bank's supports, composed with the frames of each."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.features import TokenMixture
from aviot.streaming.records import FrameRange


@dataclass(frozen=True)
class SourceRange:
    """A range of original frames in one token: every frame's patch has the weight `weight`.

    The range's weights add up to `share`.
    """

    frames: FrameRange
    patch: int
    share: float

    @property
    def weight(self) -> float:
        """The weight of each frame of the range."""
        return self.share * self.frames.weight


@dataclass(frozen=True, repr=False)
class StreamProvenance:
    """The original frames of every token, exactly, as ranges with one weight each.

    `mixture` is over the supports of the bank, `records` has the frames of each. With C the mixture and A the means
    over the supports' frames, a token's row over original frames is its row of C A: it sums to one, and the row times
    the frames' features is the token.
    """

    mixture: TokenMixture
    records: tuple[FrameRange, ...]

    def __len__(self) -> int:
        return len(self.mixture.indices)

    def __repr__(self) -> str:
        return f"StreamProvenance({len(self)} tokens of {len(self.records)} supports)"

    @property
    def frames(self) -> range:
        """The ordinals of all frames behind the bank."""
        return range(self.records[0].first, self.records[-1].last + 1)

    def sources(self, token: int) -> Iterator[SourceRange]:
        """Yield the ranges behind one token, in temporal order, without those of no weight."""
        weights = self.mixture.weights[token].tolist()
        found = zip(self.mixture.indices[token].tolist(), weights, strict=True)
        for index, share in sorted(pair for pair in found if pair[1] > 0):
            yield SourceRange(self.records[index // self.mixture.patches], index % self.mixture.patches, share)

    def support_shares(self) -> Float[Tensor, "N"]:
        """Return each support's share of all tokens, on the CPU; the shares sum to one."""
        return self.mixture.frame_shares().float().mean(0).cpu()

    def frame_shares(self, token: int | None = None) -> Float[Tensor, "F"]:
        """Return a token's distribution over all original frames, or (None) the mean of all tokens'; on the CPU.

        It is as long as the stream: `sources` says the same in constant memory.
        """
        shares = self.support_shares() if token is None else self.mixture.frame_shares()[token].cpu()
        counts = torch.tensor([record.count for record in self.records])
        return (shares.double() / counts).repeat_interleave(counts)
