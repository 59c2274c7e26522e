"""Untrained methods: uniform, averaged or random frames, random tokens, a lower resolution, and no compression."""

import math
from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.budget import Budget
from aviot.methods.aviot.baselines import (
    Mixing,
    Rule,
    mix_frames,
    random_frames,
    segment_means,
    uniform_frames,
)
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.result import Compression
from aviot.methods.base import Compressed, FrameMethod, TokenMethod
from aviot.methods.features import TokenMixture, VideoFeatures


def mix_by_weights(video: VideoFeatures, weights: Float[Tensor, "K T"]) -> Compression:
    """Mix whole frames, all positions alike: row k of the weights is support k's distribution over frames."""

    def rule(x: Float[Tensor, "B T S D"], supports: int) -> Rule:
        def mixed(frames: Float[Tensor, "B T S C"]) -> Float[Tensor, "B K S C"]:
            own = weights.to(frames.device, torch.promote_types(frames.dtype, torch.float32))
            return torch.einsum("kt,btsc->bksc", own, frames.to(own.dtype)).to(frames.dtype)

        return mixed

    return mix_frames(video.features, len(weights), Mixing(rule, (len(weights),)), FiniteCheck())


class _FixedMixing(FrameMethod):
    """A method that mixes frames by a rule that does not use the question."""

    @abstractmethod
    def rule(self, x: Float[Tensor, "B T S D"], supports: int) -> Rule:
        """Return the rule that mixes these features into those of `supports` frames."""

    def segments(self, supports: int) -> tuple[int, ...]:
        """Return the number of supports in each of the rule's segments; by default the whole video is one segment."""
        return (supports,)

    def mix(
        self, video: VideoFeatures, *, question: Tensor | None, budget: Budget, step: int | None = None
    ) -> Compression:
        """Mix one video or a batch; question and step have no effect."""
        supports = budget.frames(video.frames, video.tokens_per_frame)
        return mix_frames(video.features, supports, Mixing(self.rule, self.segments(supports)), FiniteCheck())


class Uniform(_FixedMixing):
    """Uniform Keep: K uniformly spaced frames, unchanged."""

    name = "uniform"
    title = "Uniform Keep"

    def rule(self, x: Float[Tensor, "B T S D"], supports: int) -> Rule:
        """Pick frames."""
        return uniform_frames(x, supports)


class IntervalMean(_FixedMixing):
    """Segment Mean: K contiguous, nearly equal intervals, each averaged position by position."""

    name = "segment-mean"
    title = "Segment Mean"

    def rule(self, x: Float[Tensor, "B T S D"], supports: int) -> Rule:
        """Average intervals."""
        return segment_means(x, supports)

    def segments(self, supports: int) -> tuple[int, ...]:
        """Return one support per interval."""
        return (1,) * supports


class Random(_FixedMixing):
    """Random drop: K unchanged frames, sampled at random without replacement, in temporal order.

    The same seed samples the same frames for videos of one length.
    """

    name = "random"
    title = "random drop"
    replayable = False  # a graph cannot reset the seed of its generator

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def rule(self, x: Float[Tensor, "B T S D"], supports: int) -> Rule:
        """Sample frames."""
        return random_frames(x, supports, torch.Generator().manual_seed(self.seed), draws=1)


class RandomTokens(TokenMethod):
    """Random token drop: single tokens, sampled at random without replacement from the whole video.

    The same seed samples the same positions in videos of one shape.
    """

    name = "random-tokens"
    title = "random token drop"
    replayable = False  # a graph cannot reset the seed of its generator

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def compress(self, video: VideoFeatures, *, question: Tensor | None, budget: Budget) -> Compressed:
        """Sample flat indices; raises ValueError for tokens that are not finite, which a sample could leave out."""
        finite = FiniteCheck()
        finite.require(video.features, "the video's tokens are")
        finite.raise_pending()
        generator = torch.Generator().manual_seed(self.seed)
        index = torch.randperm(video.frames * video.patches, generator=generator)[: video.limit(budget)]
        return Compressed.kept(video, index.sort().values.to(video.features.device))


class Uncompressed(_FixedMixing):
    """No compression: every frame, unchanged."""

    name = "none"
    title = "uncompressed"
    compresses = False
    replayable = False  # a graph would save few launches and hold every frame's tokens in memory

    def rule(self, x: Float[Tensor, "B T S D"], supports: int) -> Rule:
        """Return frames unchanged."""
        return lambda frames: frames

    def mix(
        self, video: VideoFeatures, *, question: Tensor | None, budget: Budget, step: int | None = None
    ) -> Compression:
        """Return every frame; the budget has no effect."""
        return mix_frames(video.features, video.frames, Mixing(self.rule, ()), FiniteCheck())

    def compress(self, video: VideoFeatures, *, question: Tensor | None, budget: Budget) -> Compressed:
        """Return every token unchanged."""
        return Compressed.kept(video, torch.arange(video.frames * video.patches, device=video.features.device))


class LowResolution(TokenMethod):
    """Low resolution: every frame on a smaller grid, each cell the mean of the tokens that it covers.

    The grid is the largest one within the budget that keeps the frame's proportions. If the budget is below one token
    per frame, evenly spaced frames have one each.
    """

    name = "low-resolution"
    title = "low resolution"

    def compress(self, video: VideoFeatures, *, question: Tensor | None, budget: Budget) -> Compressed:
        """Average cells of every frame's grid."""
        count = video.limit(budget)
        frames = min(video.frames, count)
        cells = cell_weights(video.grid, smaller_grid(video.grid, count // frames))  # [c,S]
        most = int((cells > 0).sum(1).max())
        weights, patches = cells.topk(most, dim=1)  # the covered patches of each cell, then zeros
        chosen = torch.linspace(0, video.frames - 1, frames).round().long()
        indices = (video.patches * chosen[:, None, None] + patches).flatten(0, 1)
        every = weights.expand(frames, -1, -1).flatten(0, 1)
        device = video.features.device
        return Compressed.mixed(video, TokenMixture(indices.to(device), every.to(device), video.frames, video.patches))


def smaller_grid(grid: tuple[int, int], cells: int) -> tuple[int, int]:
    """Return the largest grid of at most `cells` cells with the proportions of a grid."""
    rows, columns = grid
    if cells >= rows * columns:
        return grid
    sizes = (
        (height, min(columns, cells // height)) for height in range(1, min(rows, cells) + 1) if cells // height >= 1
    )

    def distortion(size: tuple[int, int]) -> float:
        return abs(math.log((size[0] / size[1]) / (rows / columns)))

    return min(sizes, key=lambda size: (round(distortion(size), 2), -size[0] * size[1]))


def cell_weights(grid: tuple[int, int], smaller: tuple[int, int]) -> Float[Tensor, "c S"]:
    """Return the weight of every patch in the mean of each cell of a smaller grid over the same frame."""
    patches = math.prod(grid)
    unit = torch.eye(patches).unflatten(1, grid)  # patch i is the i-th unit image
    return torch.nn.functional.adaptive_avg_pool2d(unit[:, None], smaller).flatten(1).T.contiguous()
