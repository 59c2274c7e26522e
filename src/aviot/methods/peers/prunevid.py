"""PruneVid before the decoder: static background merged over time, then tokens clustered in space."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import ParameterizedMethod, largest_within
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
    means = features.mean(1, dtype=torch.float32)
    labels, _ = cluster(means, max(1, int(frames * parameters.segment_ratio)), parameters.neighbours)
    refined = refine(labels.tolist())
    lengths = tuple(len(list(run)) for _, run in groupby(refined))
    static = steadiness(features, torch.tensor(lengths, device=features.device)) > parameters.static_threshold
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


def steadiness(features: Float[Tensor, "T N D"], lengths: Int[Tensor, "G"]) -> Float[Tensor, "G N"]:
    """Return the mean cosine of each position's tokens in different frames of a segment; -1 for a single frame.

    The original divides zero by zero for a single frame, whose tokens are then static or dynamic by rounding.
    """
    squares = []
    for part in _positions(features):
        unit = normalize(part.float(), dim=-1, eps=1e-12)
        squares.append(_over_segments(unit, lengths, "sum").square().sum(-1))
    count = lengths[:, None]
    pairs = (count * (count - 1)).clamp_min(1)
    return ((torch.cat(squares, 1) - count) / pairs).masked_fill(count == 1, -1.0)


def _positions(features: Float[Tensor, "T N D"]) -> tuple[Tensor, ...]:
    """Split positions into parts that fit in memory in float32."""
    return features.split(chunk_size(len(features) * features.shape[2]), dim=1)


def _over_segments(
    values: Float[Tensor, "T n D"], lengths: Int[Tensor, "G"], how: Literal["sum", "mean"]
) -> Float[Tensor, "G n D"]:
    """Return the sum or mean of each position over the frames of each segment."""
    summed = torch.segment_reduce(values.flatten(1), how, lengths=lengths, axis=0)
    return summed.unflatten(1, values.shape[1:])


def merge(
    features: Float[Tensor, "T N D"], segments: Segmentation, parameters: PruneVidParameters = PUBLISHED
) -> TokenGroups:
    """Group the tokens segment by segment: first static positions over all its frames, then each frame's others.

    Groups of clustered tokens come in the order of their centres' scores, others in that of their positions.
    """
    (frames, patches, _), device = features.shape, features.device
    lengths = torch.tensor(segments.lengths, device=device)
    owner = torch.arange(len(lengths), device=device).repeat_interleave(lengths)
    static, moving = segments.static, ~segments.static[owner]
    means = torch.cat([_over_segments(part.float(), lengths, "mean") for part in _positions(features)], 1)
    still = list(segments.static_counts)
    left = [patches - count for count, length in zip(still, segments.lengths, strict=True) for _ in range(length)]
    first_still, first_moving, made = _numbering(segments, parameters)
    of_static = clustered(means, static, still, parameters) + torch.tensor(first_still, device=device)[:, None]
    of_moving = clustered(features, moving, left, parameters) + torch.tensor(first_moving, device=device)[:, None]
    labels = torch.where(moving, of_moving, of_static[owner])
    return TokenGroups(torch.arange(frames * patches, device=device), labels.flatten(), made)


def _numbering(segments: Segmentation, parameters: PruneVidParameters) -> tuple[list[int], list[int], int]:
    """Return the first group of each segment's static tokens and of each frame's others, and the number of groups."""
    first_still, first_moving, made = [], [], 0
    for length, (still, moving) in zip(segments.lengths, segments.sizes(parameters), strict=True):
        first_still.append(made)
        first_moving += [made + still + frame * (moving // length) for frame in range(length)]
        made += still + moving
    return first_still, first_moving, made


def clustered(
    values: Float[Tensor, "S N D"], mask: Bool[Tensor, "S N"], sizes: list[int], parameters: PruneVidParameters
) -> Int[Tensor, "S N"]:
    """Return the group of each token in a mask among those of its set, which has one of `sizes`; others' mean nothing.

    Small sets have a group for each token.
    """
    labels = mask.cumsum(1) - 1
    large = [number for number, size in enumerate(sizes) if size > parameters.unclustered]
    most = max((sizes[number] for number in large), default=0)
    members = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    for part in torch.tensor(large, dtype=torch.long).split(chunk_size(most * max(most, values.shape[2]))):
        if not len(part):
            break
        counts = [sizes[number] for number in part.tolist()]
        size = torch.tensor(counts, device=values.device)
        wanted = torch.tensor([parameters.clusters(count) for count in counts], device=values.device)
        at = part.to(values.device)
        here = members[at]
        there = torch.arange(most, device=values.device) < size[:, None]
        near = size.clamp_max(parameters.neighbours)
        own, _ = cluster(values[at[:, None], here], wanted, near, there)
        labels[at] = labels[at].scatter(1, here, own)
    return labels


class PruneVid(ParameterizedMethod[PruneVidParameters]):
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
        super().__init__(parameters)

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
