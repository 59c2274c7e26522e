"""Merging by plain means: every output token is the mean of a group of source tokens."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import Compressed, grid_positions
from aviot.methods.features import TokenMixture, VideoFeatures


@dataclass(frozen=True, eq=False)
class TokenGroups:
    """Groups of source tokens: `labels[i]` is the group, below `count`, of the token with flat index `sources[i]`.

    Every group has at least one member.
    """

    sources: Int[Tensor, "m"]
    labels: Int[Tensor, "m"]
    count: int

    @cached_property
    def _sorted(self) -> tuple[Int[Tensor, "m"], Int[Tensor, "m"]]:
        """The members group by group, in their order, and the group of each."""
        order = torch.argsort(self.labels, stable=True)
        return self.sources[order], self.labels[order]

    @cached_property
    def sizes(self) -> Int[Tensor, "count"]:
        """The number of members of each group."""
        return torch.bincount(self.labels, minlength=self.count)

    def means(self, values: Float[Tensor, "n D"]) -> Float[Tensor, "count D"]:
        """Return each group's mean of its members' values, in float32 or better; repeated calls agree to the bit."""
        members, _ = self._sorted
        own = values[members].to(torch.promote_types(values.dtype, torch.float32))
        return torch.segment_reduce(own, "mean", lengths=self.sizes, axis=0)

    def mixture(self, frames: int, patches: int) -> TokenMixture:
        """Return the groups as mixtures with equal weights, padded to the size of the largest group."""
        members, labels = self._sorted
        place = torch.arange(len(members), device=members.device) - (self.sizes.cumsum(0) - self.sizes)[labels]
        indices = members.new_zeros((self.count, int(self.sizes.max())))
        indices[labels, place] = members
        weights = torch.zeros(indices.shape, device=indices.device)
        weights[labels, place] = (1 / self.sizes.to(torch.float32))[labels]
        return TokenMixture(indices, weights, frames, patches)

    def compressed(self, video: VideoFeatures) -> Compressed:
        """Return the groups' means as a method's result; a token stands at its members' mean time, row and column.

        The padded mixture can be far larger than the video (a static background of a thousand frames is one group), so
        neither tokens nor positions are computed from it, and it is made only when it is asked for.
        """
        tokens = self.means(video.flat()).to(video.features.dtype)
        grid, times, frames, patches = video.grid, video.times, video.frames, video.patches

        def positions() -> Float[Tensor, "count 3"]:
            every = torch.arange(frames * patches, device=self.sources.device)
            row, column = grid_positions(grid, every % patches)
            seconds = torch.tensor(times, device=every.device)[every // patches]
            return self.means(torch.stack((seconds, row.float(), column.float()), 1))

        return Compressed(tokens, grid, positions, lambda: self.mixture(frames, patches), frame_times=times)
