"""VidCom2: frames that stand out keep more tokens, and in each frame the least redundant tokens stay."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod, largest_within
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.newline_indices import newlines_behind_frames

RETENTION = 0.25
BANDWIDTHS = (1 / 8, 1 / 4, 1 / 2, 1, 2)
CHANNELS = 0.5
"""Share of the channels that similarity is computed on, those of lowest variance."""

TEMPERATURE = 0.01
"""Of the softmax over frames; with it one frame takes nearly all of the weight."""

NORM_FLOOR = 1e-12
FULL = 2.0
"""Retention at which every token of any video of two or more frames is kept: no frame's factor is below a half."""


class Redundancy(NamedTuple):
    """Similarity of each token to the mean of the video and to the mean of its frame; high means redundant."""

    video: Float[Tensor, "T N"]
    frame: Float[Tensor, "T N"]

    @property
    def total(self) -> Float[Tensor, "T N"]:
        """The sum of both."""
        return self.video + self.frame


def quiet_channels(x: Float[Tensor, "T N C"]) -> Int[Tensor, "m"]:
    """Return the half of the channels with the lowest variance over all tokens, rounded down, but at least one."""
    flat = x.flatten(0, 1)
    parts = flat.split(chunk_size(len(flat)), dim=1)
    variance = torch.cat([part.to(working_dtype(x.dtype)).var(0, correction=0) for part in parts])
    return variance.argsort(stable=True)[: max(1, int(x.shape[-1] * CHANNELS))]


def multi_scale_similarity(u: Float[Tensor, "T N m"], centre: Float[Tensor, "*T #N m"]) -> Float[Tensor, "T N"]:
    """Return the sum of Gaussian kernels of several bandwidths between tokens and a centre, from 0 to 5."""
    squared = (u - centre).square().sum(-1)
    return torch.stack([(-squared / (2 * width)).exp() for width in BANDWIDTHS]).sum(0)


def redundancy(x: Float[Tensor, "T N C"]) -> Redundancy:
    """Return both similarities of every token, on unit vectors of the channels of lowest variance."""
    channels = quiet_channels(x)
    chunk = chunk_size(x.shape[1] * len(channels))

    def units(part: Tensor) -> Tensor:
        return functional.normalize(part[..., channels].to(working_dtype(x.dtype)), dim=-1, eps=NORM_FLOOR)

    centres = torch.cat([units(part).mean(1) for part in x.split(chunk)])
    centre = centres.mean(0)
    pairs = zip(x.split(chunk), centres.split(chunk), strict=True)
    scores = [
        (multi_scale_similarity(u, centre), multi_scale_similarity(u, own[:, None]))
        for u, own in ((units(part), own) for part, own in pairs)
    ]
    return Redundancy(*(torch.cat(parts) for parts in zip(*scores, strict=True)))


def frame_factors(video_score: Float[Tensor, "T N"]) -> Float[Tensor, "T"]:
    """Return the multiple of the average retention that each frame gets: from 1 - 1/T to 2 - 1/T, on average 1."""
    distinctness = -video_score.mean(1)
    weight = torch.softmax((distinctness - distinctness.max()) / TEMPERATURE, 0)
    return 1 + weight - weight.mean()


def frame_scales(factors: Float[Tensor, "T"], retention: float) -> Float[Tensor, "T"]:
    """Return the share of each frame's tokens to keep, at most 1."""
    return (retention * factors).clamp_max(1)


def frame_counts(scales: Float[Tensor, "T"], patches: int) -> Int[Tensor, "T"]:
    """Return how many tokens each frame keeps: at least one; halves are rounded to even numbers."""
    return (scales * patches).round().long().clamp_min(1)


def lowest(score: Float[Tensor, "T N"], counts: Int[Tensor, "T"]) -> Bool[Tensor, "T N"]:
    """Return a mask of each frame's tokens of lowest score."""
    ranks = score.argsort(dim=1, stable=True).argsort(1)
    return ranks < counts[:, None]


def vidcom2(x: Float[Tensor, "T N C"], retention: float = RETENTION) -> Int[Tensor, "n"]:
    """Return the flat indices of the tokens that stay, in ascending order."""
    scores = redundancy(x)
    counts = frame_counts(frame_scales(frame_factors(scores.video), retention), x.shape[1])
    return torch.nonzero(lowest(scores.total, counts).flatten())[:, 0]


def vidcom2_with_newlines(
    x: Float[Tensor, "T N C"], grid: tuple[int, int], retention: float = RETENTION
) -> Int[Tensor, "n"]:
    """Return indices in the sequence with a newline after every row, as for LLaVA-Video.

    Each frame's tokens are followed by all its newlines, which are not counted as tokens.
    """
    return newlines_behind_frames(vidcom2(x, retention), len(x), grid)


class VidCom2(BudgetedMethod):
    """VidCom2: selection by distinctness of frames and tokens (Video Compression Commander, EMNLP 2025, 2505.14454).

    A token's redundancy is its similarity to the mean of the whole video plus that to the mean of its frame, both by
    Gaussian kernels on the half of the channels with the lowest variance. A softmax over the frames' mean
    distinctness sets how many tokens each keeps: at its temperature, one frame keeps about twice the average.

    Retention in the paper is the parameter R, the average share of patch tokens kept before the decoder; the counts
    are rounded frame by frame and not corrected, so their sum is only near R. Here R is the largest one whose sum is
    within the budget; it may exceed 1, since R = 1 does not keep everything. Below one token per frame, the method's
    floor, the most redundant of these tokens are dropped too.

    The reference computes in the model's precision, this code in float32. It follows the code for "least informative"
    channels, which are those of lowest variance.
    """

    name = "vidcom2"
    title = "VidCom2"
    replayable = False  # the number of tokens depends on the video

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Find the retention of the limit and keep each frame's least redundant tokens."""
        scores = redundancy(video.features)
        factors = frame_factors(scores.video)
        on_cpu = factors.cpu()

        def counts(of: Tensor, retention: float) -> Tensor:
            return frame_counts(frame_scales(of, retention), video.patches)

        retention = largest_within(lambda value: int(counts(on_cpu, value).sum()), limit, 0.0, FULL)
        index = torch.nonzero(lowest(scores.total, counts(factors, retention)).flatten())[:, 0]
        if len(index) > limit:
            best = scores.total.flatten()[index].argsort(stable=True)[:limit]
            index = index[best].sort().values
        return Compressed.kept(video, index)
