"""Merged tokens with their sources listed one by one, so that a few large groups cost no memory for all others."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import Compressed, grid_positions
from aviot.methods.features import TokenMixture, VideoFeatures
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.mixtures import SparseSums


class Sources(NamedTuple):
    """Sources of merged tokens: entry j adds `weight[j]` times source `source[j]` to token `token[j]`, in any order.

    The weights of each token sum to one, except where a method adds tokens up.
    """

    token: Int[Tensor, "e"]
    source: Int[Tensor, "e"]
    weight: Float[Tensor, "e"]

    def mixture(self, count: int, frames: int, patches: int) -> TokenMixture:
        """Return the mixture of `count` tokens, which is as wide as the token with most sources."""
        return SparseSums.of(*self, count).mixture(frames, patches)

    def positions(self, count: int, grid: tuple[int, int], times: tuple[float, ...]) -> Float[Tensor, "n 3"]:
        """Return the mean time, row and column of each of `count` tokens, summed in float64."""
        device, patches = self.token.device, grid[0] * grid[1]
        seconds = torch.tensor(times, dtype=torch.float64, device=device)
        summed = seconds.new_zeros(count, 4)
        chunk = chunk_size(4)
        for token, source, weight in zip(*(part.split(chunk) for part in self), strict=True):
            row, column = grid_positions(grid, source % patches)
            values = torch.stack((seconds[source // patches], row.to(seconds), column.to(seconds)), 1)
            values = torch.cat((values, torch.ones_like(values[:, :1])), 1)
            summed.index_add_(0, token, weight.to(seconds)[:, None] * values)
        return (summed[:, :3] / summed[:, 3:]).float()


def merged(video: VideoFeatures, sources: Sources, tokens: Float[Tensor, "n D"]) -> Compressed:
    """Return merged tokens; positions and mixture are made of their sources on first use."""
    count, grid, times = len(tokens), video.grid, video.times  # closures must not hold the features in memory
    frames, patches = video.frames, video.patches
    return Compressed(
        tokens,
        grid,
        lambda: sources.positions(count, grid, times),
        lambda: sources.mixture(count, frames, patches),
        frame_times=times,
    )
