"""PruneVid before the decoder: static background merged over time, then tokens clustered in space."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod, largest_within
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.density_peaks import cluster
from aviot.methods.peers.groups import TokenGroups


@dataclass(frozen=True, kw_only=True)
class PruneVidParameters:
    """The method's parameters; the defaults are the paper's, the same for all its benchmarks.

    A position is static in a segment if its tokens' mean pairwise cosine is above `static_threshold`. There are
    `segment_ratio` as many temporal clusters as frames. A group of more than `unclustered` tokens is clustered into
    `cluster_ratio` as many, by densities over `neighbours` tokens.
    """

    static_threshold: float = 0.8
    cluster_ratio: float = 0.5
    segment_ratio: float = 0.25
    unclustered: int = 14
    neighbours: int = 7

    def clusters(self, tokens: int) -> int:
        """Return the number of tokens that are left of a group."""
        return tokens if tokens <= self.unclustered else max(1, int(tokens * self.cluster_ratio))


PUBLISHED = PruneVidParameters()


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Temporal segments and the positions that are static in each.

    `labels` are the temporal clusters of frames, `refined` the same without stray ones; a segment is a run of equal
    refined labels, and `lengths` are the segments' numbers of frames. `static_counts` sums up `static` on the host.
    """

    labels: Int[Tensor, "T"]
    refined: tuple[int, ...]
    lengths: tuple[int, ...]
    static: Bool[Tensor, "G N"]
    static_counts: tuple[int, ...]

    def sizes(self, parameters: PruneVidParameters) -> list[tuple[int, int]]:
        """Return the number of static and dynamic tokens that are left of each segment."""
        patches = self.static.shape[1]
        return [
            (parameters.clusters(still), length * parameters.clusters(patches - still))
            for length, still in zip(self.lengths, self.static_counts, strict=True)
        ]

    def count(self, parameters: PruneVidParameters) -> int:
        """Return the number of tokens that are left of the video."""
        return sum(map(sum, self.sizes(parameters)))


def segment(features: Float[Tensor, "T N D"], parameters: PruneVidParameters = PUBLISHED) -> Segmentation:
    """Cut a video where clusters of frames change, and find what is static in each segment."""
    frames = len(features)
    means = torch.stack([frame.float().mean(0) for frame in features])
    labels, _ = cluster(means, max(1, int(frames * parameters.segment_ratio)), parameters.neighbours)
    refined = refine(labels.tolist())
    lengths = tuple(len(list(run)) for _, run in groupby(refined))
    static = torch.stack([steadiness(part) > parameters.static_threshold for part in features.split(lengths)])
    return Segmentation(labels, tuple(refined), lengths, static, tuple(static.sum(1).tolist()))


def refine(labels: Sequence[int]) -> list[int]:
    """Return labels of frames without stray ones.

    A label stays in its longest runs, if these have two frames or more. From left to right, frames between them get the
    label of the neighbour with the longer run, as relabelled so far; the left one's if both are equally long.
    """
    runs = [(label, len(list(run))) for label, run in groupby(labels)]
    longest: dict[int, int] = {}
    for label, length in runs:
        longest[label] = max(length, longest.get(label, 2))
    stays = [label if length == longest[label] else None for label, length in runs for _ in range(length)]
    blocks = [(label, len(list(run))) for label, run in groupby(stays)]
    done: list[tuple[int, int]] = []
    for place, (own, length) in enumerate(blocks):
        left = done[-1] if done else (0, 0)
        if own is None:
            right, size = blocks[place + 1] if place + 1 < len(blocks) else (0, 0)
            own = right if size > left[1] else left[0]
        if done and left[0] == own:
            length += done.pop()[1]
        done.append((own or 0, length))
    return [label for label, length in done for _ in range(length)]


def steadiness(tokens: Float[Tensor, "W N D"]) -> Float[Tensor, "N"]:
    """Return the mean cosine of each position's tokens in different frames; -1 for a single frame.

    The original divides zero by zero for a single frame, whose tokens are then static or dynamic by rounding.
    """
    frames = len(tokens)
    if frames == 1:
        return tokens.new_full((tokens.shape[1],), -1.0, dtype=torch.float32)
    total = normalize(tokens.float(), dim=-1, eps=1e-12).sum(0)
    return (total.square().sum(-1) - frames) / (frames * (frames - 1))


def merge(
    features: Float[Tensor, "T N D"], segments: Segmentation, parameters: PruneVidParameters = PUBLISHED
) -> TokenGroups:
    """Group the tokens segment by segment: first static positions over all its frames, then each frame's others.

    Groups of clustered tokens come in the order of their centres' scores, others in that of their positions.
    """
    frames, patches, _ = features.shape
    labels = torch.empty((frames, patches), dtype=torch.long, device=features.device)
    made = start = 0
    for length, static in zip(segments.lengths, segments.static, strict=True):
        part = features[start : start + length]
        still, moving = static.nonzero()[:, 0], (~static).nonzero()[:, 0]
        for positions, tokens in ((still, part[:, still].float().mean(0, keepdim=True)), (moving, part[:, moving])):
            own = _clustered(tokens, parameters) + made
            labels[start : start + length, positions] = own
            made += own.shape[0] * parameters.clusters(own.shape[1])
        start += length
    sources = torch.arange(frames * patches, device=features.device)
    return TokenGroups(sources, labels.flatten(), made)


def _clustered(tokens: Float[Tensor, "W n D"], parameters: PruneVidParameters) -> Int[Tensor, "W n"]:
    """Return groups of the tokens of each frame, numbered on from frame to frame."""
    frames, count, _ = tokens.shape
    clusters = parameters.clusters(count)
    if count > parameters.unclustered:
        parts = tokens.split(chunk_size(count**2))
        labels = torch.cat([cluster(part, clusters, parameters.neighbours)[0] for part in parts])
    else:
        labels = torch.arange(count, device=tokens.device).expand(frames, -1)
    return labels + clusters * torch.arange(frames, device=tokens.device)[:, None]


class PruneVid(BudgetedMethod):
    """PruneVid before the decoder (Findings of ACL 2025, arXiv 2412.16117): static tokens merged over time, and space.

    Frames are clustered into temporal segments. Positions whose tokens stay alike throughout a segment are averaged
    over it; then the static tokens of a segment, and the others of each frame, are clustered by density peaks and
    averaged. The paper's second part, which drops tokens after the decoder's eleventh layer by their attention, is a
    method inside the decoder and not in this class. The "retained ratio" in the paper (16.2% for PLLaVA) is what is
    left after both parts, an average over videos: the number of tokens follows from the video, not from a setting. The
    authors published the program for PLLaVA only; other papers' "PruneVid at 10%" are re-implementations.

    The code is followed, without its random noise on densities, and with two decisions of our own. A segment of one
    frame has only dynamic tokens (the original divides by zero). Where fewer frames or tokens than neighbours are left
    (7), all of them are neighbours.

    The budget chooses the cluster ratio: the largest one, up to 1, whose count is within the limit; threshold and
    segments stay the published ones. A video that is mostly static may give fewer tokens than the budget allows. If no
    ratio is enough, groups of up to 14 tokens, which the method leaves as they are, are clustered too; if that is not
    enough, ValueError names the smallest number of tokens for this video, one or two groups per frame.
    """

    name = "prunevid"
    title = "PruneVid before the decoder"
    replayable = False  # the number of tokens follows from the features

    def __init__(self, parameters: PruneVidParameters = PUBLISHED) -> None:
        self.parameters = parameters

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """Add the parameters."""
        return *super().replay_key, self.parameters

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Segment the video, then choose the cluster ratio by the limit."""
        segments, own = segment(video.features, self.parameters), self.parameters

        def count(ratio: float) -> int:
            return segments.count(replace(own, cluster_ratio=ratio))

        if count(0.0) > limit:
            own = replace(own, unclustered=0)
            self.refuse_below(count(0.0), video, limit, "these are its groups, static ones and each frame's own")
        own = replace(own, cluster_ratio=largest_within(count, limit, 0.0, 1.0))
        return merge(video.features, segments, own).compressed(video)
