"""FlashVID's trees: tokens that join their most similar token of the frame before, and clusters of what is left."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.density_peaks import cluster
from aviot.methods.peers.flashvid_selection import unit_vectors
from aviot.methods.peers.groups import TokenGroups
from aviot.methods.peers.merged import Sources
from aviot.methods.peers.mixtures import SparseSums

NOTHING = -1.0  # the similarity of a selected token, and of one without a frame before it
LEAST_LINK = NOTHING + 1e-6  # smallest threshold, published
NEIGHBOURS = 7  # of a token's density


class Segments(NamedTuple):
    """Each frame's segment, numbered from 0, and the number of frames in it."""

    number: Int[Tensor, "T"]
    length: Int[Tensor, "T"]

    def sums(self, values: Int[Tensor, "T"]) -> Int[Tensor, "T"]:
        """Return for each frame the sum of its segment's whole numbers."""
        total = torch.zeros_like(values).index_add_(0, self.number, values)
        return total[self.number]


def best_before(
    x: Float[Tensor, "T N D"], selected: Bool[Tensor, "T N"], segment: Int[Tensor, "T"]
) -> tuple[Float[Tensor, "T N"], Int[Tensor, "T N"]]:
    """Return each token's largest cosine to the frame before it in its segment, and the first token that has it."""
    frames, patches, _ = x.shape
    value = torch.full((frames, patches), NOTHING, dtype=unit_vectors(x[:1, :1]).dtype, device=x.device)
    parent = torch.zeros((frames, patches), dtype=torch.long, device=x.device)
    step = chunk_size(patches * max(x.shape[1:]))
    for start in range(1, frames, step):
        end = min(start + step, frames)
        unit = unit_vectors(x[start - 1 : end])
        cosine = unit[1:] @ unit[:-1].mT
        out = selected[start:end, :, None] | selected[start - 1 : end - 1, None, :]
        out = out | (segment[start:end] != segment[start - 1 : end - 1])[:, None, None]
        value[start:end], parent[start:end] = cosine.masked_fill_(out, NOTHING).max(2)
    return value, parent


def links(similarity: Float[Tensor, "T N"], segments: Segments, threshold: float, count: int) -> Bool[Tensor, "T N"]:
    """Return which tokens join one of the frame before: those above the threshold.

    If fewer than `count` tokens per frame of a segment would be left, selected ones included, its threshold is raised
    until there are.
    """
    frames, patches = similarity.shape
    short = segments.sums((similarity <= threshold).sum(1)) < count * segments.length
    by_value = similarity.flatten().argsort(descending=True, stable=True)
    owner = segments.number[by_value // patches]
    ordered = similarity.flatten()[by_value[owner.argsort(stable=True)]].view(frames, patches)
    start = torch.arange(frames, device=similarity.device)
    start = torch.zeros_like(start).scatter_reduce_(0, segments.number, start, "amin", include_self=False)
    kth = segments.length * (patches - count)  # this many tokens may leave; the last of them stays
    place = start[segments.number] * patches + (kth - 1).clamp_min(0)
    raised = ordered.flatten()[place].clamp_min(LEAST_LINK).masked_fill(kth < 1, torch.inf)
    return similarity > torch.where(short, raised, threshold)[:, None]


def survivors(
    linked: Bool[Tensor, "T N"],
    parent: Int[Tensor, "T N"],
    selected: Bool[Tensor, "T N"],
    alone: Bool[Tensor, "T"],
    dtype: torch.dtype = torch.float32,
) -> tuple[Int[Tensor, "s"], SparseSums]:
    """Return the flat indices of the roots that are not selected, and the sums of tokens behind them.

    A root is the sum of its tree over one plus the number of tokens that join it directly. Deeper members are summed,
    but not counted. All tokens of a frame that is `alone` in its segment are roots, selected ones too.
    """
    frames, patches = linked.shape
    itself = torch.arange(frames * patches, device=linked.device)
    above = (torch.arange(frames, device=linked.device)[:, None] - 1) * patches + parent
    joins = torch.where(linked, above, itself.view_as(parent)).flatten()
    root = joins
    for _ in range(max(frames - 1, 1).bit_length()):  # doubles the steps that are followed, up to T - 1
        root = root[root]
    children = torch.bincount(joins, minlength=len(itself)) - 1  # all but the token itself, where it is a root
    stays = (alone[:, None] | ~selected).flatten()
    member = torch.nonzero(stays)[:, 0]
    is_root = stays & ~linked.flatten()
    number = is_root.cumsum(0) - 1
    index = torch.nonzero(is_root)[:, 0]
    own = root[member]
    weight = 1 / (1 + children[own]).to(dtype)
    return index, SparseSums.of(number[own], member, weight, len(index))


class Clusters(NamedTuple):
    """The cluster of each token, and the token that is each cluster's centre."""

    label: Int[Tensor, "s"]
    centre: Int[Tensor, "g"]


def clustered(values: Float[Tensor, "s D"], frame: Int[Tensor, "s"], segments: Segments, count: int) -> Clusters:
    """Cluster each frame's tokens, in proportion to their number, into `count` per frame of a segment on average.

    Proportions are rounded up in each frame. A segment that has no more tokens than that keeps them.
    """
    frames = len(segments.number)
    tokens = torch.bincount(frame, minlength=frames)
    share = (count * segments.length).double() / segments.sums(tokens).clamp_min(1)
    wanted = torch.where(share < 1, (tokens * share).ceil().long(), tokens).minimum(tokens)
    first = tokens.cumsum(0) - tokens
    place = torch.arange(len(frame), device=frame.device) - first[frame]
    label, is_centre = place.clone(), torch.ones_like(place, dtype=torch.bool)
    at = torch.nonzero(wanted < tokens)[:, 0]
    most = int(tokens[at].max()) if len(at) else 0
    for part in at.split(chunk_size(most * max(most, values.shape[1]))) if most else ():
        column = torch.arange(most, device=frame.device)
        mask = column < tokens[part][:, None]
        here = (first[part][:, None] + column).clamp_max(len(frame) - 1)
        own, centres = cluster(values[here], wanted[part], wanted[part].clamp_max(NEIGHBOURS), mask)
        label[here[mask]], is_centre[here[mask]] = own[mask], centres[mask]
    label += (wanted.cumsum(0) - wanted)[frame]
    centre = torch.empty(int(wanted.sum()), dtype=torch.long, device=frame.device)
    found = torch.nonzero(is_centre)[:, 0]
    centre[label[found]] = found
    return Clusters(label, centre)


def merge_trees(
    x: Float[Tensor, "T N D"], index: Int[Tensor, "s"], trees: SparseSums, segments: Segments, count: int
) -> tuple[Int[Tensor, "g"], Float[Tensor, "g D"], Sources]:
    """Return the centres' flat indices, the clusters' means of the trees' values, and the sources of each."""
    values = trees.tokens(x.flatten(0, 1))
    label, centre = clustered(values, torch.div(index, x.shape[1], rounding_mode="floor"), segments, count)
    groups = TokenGroups(torch.arange(len(index), device=index.device), label, len(centre))
    own = label[trees.token]
    return index[centre], groups.means(values), Sources(own, trees.source, trees.weight / groups.sizes[own])
