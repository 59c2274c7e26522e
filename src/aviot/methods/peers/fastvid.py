"""FastVID: per segment, the tokens that the encoder attends to, and density peaks that absorb the rest."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod, most_attended_of_frames
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.density_peaks import density_peaks, ranks
from aviot.methods.peers.fastvid_merge import Anchors, Span, merge_into
from aviot.methods.peers.merged import Sources, merged
from aviot.methods.peers.newline_indices import insert_newlines, newlines_of_used_rows
from aviot.methods.peers.segments import cut_segments, neighbour_cosines

Variant = Literal["ov", "lv", "q25"]
"""The integrations, which count and merge differently: LLaVA-OneVision, LLaVA-Video, Qwen2.5-VL."""

NEIGHBOURS = 4


@dataclass(frozen=True)
class FastVidParameters:
    """The published parameters of LLaVA-OneVision and LLaVA-Video; `QWEN` has those of Qwen2.5-VL."""

    variant: Variant = "ov"
    retention: float = 0.10  # share of a frame's tokens
    segments: int = 8  # least number of segments
    threshold: float = 0.9  # cosine of neighbouring frames below which a segment ends
    context: float = 0.4  # share of anchors in the tokens that stay
    period: int = 4  # every which frame of a segment has anchors, counted from its last
    own_weight: float = 0.6  # least weight of an anchor in its own merged token
    skip: float = 0.95  # q25 only: cosine from which a frame of a segment is left out for the next one


QWEN = FastVidParameters("q25", retention=0.27, threshold=0.84)


@dataclass(frozen=True, eq=False)
class FastVidTokens:
    """The result: segment lengths, flat indices in ascending order, the tokens there, and their sources."""

    segments: tuple[int, ...]
    index: Int[Tensor, "n"]
    tokens: Float[Tensor, "n C"]
    sources: Sources


class Plan(NamedTuple):
    """For every frame: salient tokens, anchors, and the frames whose tokens its anchors absorb."""

    salient: list[int]
    anchors: list[int]
    spans: list[Span]


def per_frame(patches: int, retention: float) -> int:
    """Return the number of tokens per frame; truncated."""
    return int(patches * retention)


def spread(total: int, parts: int) -> list[int]:
    """Return nearly equal whole numbers with a sum; the first ones are larger."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def plan_segment(start: int, ends: list[int], length: int, count: int, patches: int, of: FastVidParameters) -> Plan:
    """Return the plan of one segment whose frames `ends`, counted from its start, may keep tokens."""
    salient, anchors, spans = [0] * length, [0] * length, [Span(start, length)] * length
    slots = ends[:: -of.period]
    if of.variant == "ov":
        context = int(count * of.context)
        salient = [count - context] * length
        each = context * length // len(slots)
        for frame in slots:
            anchors[frame] = min(each, patches - salient[frame])
        if each == context:
            spans = [Span(start + frame, 1) for frame in range(length)]
        return Plan(salient, anchors, spans)
    context = int(count * length * of.context)
    if of.variant == "q25":
        context = max(context, 1)
    for frame, share in zip(slots, spread(context, len(slots)), strict=True):
        anchors[frame] = min(share, patches // 2) if of.variant == "q25" and length > 1 else share
    for frame, share in zip(ends, spread(max(count * length - context, 0), len(ends)), strict=True):
        if of.variant == "q25":
            salient[frame] = min(share, patches - anchors[frame])
        else:
            salient[frame] = share
            anchors[frame] = min(anchors[frame], patches - share)
    return Plan(salient, anchors, spans)


def plan_of(
    segments: Sequence[int], similarity: Sequence[float], count: int, patches: int, of: FastVidParameters
) -> Plan:
    """Return the plan of a video for `count` tokens per frame; `similarity` is that of neighbouring frames.

    With `q25`, only the last of several alike frames in a segment may keep tokens.
    """
    plans = []
    for length, end in zip(segments, accumulate(segments), strict=True):
        start, ends = end - length, list(range(length))
        if of.variant == "q25":
            ends = [frame for frame in ends if frame == length - 1 or similarity[start + frame] < of.skip]
        plans.append(plan_segment(start, ends, length, count, patches, of))
    return Plan(*(list(chain.from_iterable(parts)) for parts in zip(*plans, strict=True)))


def most_attended(attention: Float[Tensor, "T N"], counts: Int[Tensor, "T"]) -> Bool[Tensor, "T N"]:
    """Return a mask of each frame's most attended tokens."""
    return ranks(attention) < counts[:, None]


def find_anchors(x: Float[Tensor, "T N C"], salient: Bool[Tensor, "T N"], plan: Plan) -> Anchors:
    """Return the density peaks among the tokens that are not salient, in frames that have anchors."""
    frames = [frame for frame, count in enumerate(plan.anchors) if count]
    device, patches = x.device, x.shape[1]
    at = torch.tensor(frames, device=device)
    counts = torch.tensor([plan.anchors[frame] for frame in frames], device=device)
    near = torch.tensor([min(NEIGHBOURS, patches - plan.salient[frame]) for frame in frames], device=device)
    chunk = chunk_size(patches * max(patches, x.shape[2]))
    parts = zip(at.split(chunk), near.split(chunk), strict=True)
    score = torch.cat([density_peaks(x[here], neighbours, ~salient[here])[1] for here, neighbours in parts])
    most = max(plan.anchors)
    patch = score.argsort(dim=1, descending=True, stable=True)[:, :most]
    return Anchors(at, patch, torch.arange(most, device=device) < counts[:, None], [plan.spans[t] for t in frames])


def fastvid(
    x: Float[Tensor, "T N C"],
    attention: Float[Tensor, "T N"],
    frames: Float[Tensor, "T G"] | None = None,
    parameters: FastVidParameters | None = None,
    count: int | None = None,
) -> FastVidTokens:
    """Return the tokens that stay, salient ones unchanged and anchors merged with what they absorb.

    `frames` is one vector per frame, by default its mean token. `count` is the number of tokens per frame; by default
    that of the parameters' retention.
    """
    of = parameters or FastVidParameters()
    similarity = neighbour_cosines(x.to(working_dtype(x.dtype)).mean(1) if frames is None else frames)
    segments = cut_segments(similarity, of.segments, of.threshold)
    count = per_frame(x.shape[1], of.retention) if count is None else count
    plan = plan_of(segments, similarity.tolist(), count, x.shape[1], of)
    salient = most_attended(attention, torch.tensor(plan.salient, device=x.device))
    if not any(plan.anchors):
        index = torch.nonzero(salient.flatten())[:, 0]
        own = torch.arange(len(index), device=x.device)
        ones = torch.ones(len(index), device=x.device)
        return FastVidTokens(segments, index, x.flatten(0, 1)[index], Sources(own, index, ones))
    anchors = find_anchors(x, salient, plan)
    index, tokens, sources = merge_into(x, salient, anchors, of.own_weight, absorb_own=of.variant == "ov")
    return FastVidTokens(segments, index, tokens, sources)


def add_newlines(
    made: FastVidTokens, columns: int, newline: Float[Tensor, "C"]
) -> tuple[Int[Tensor, "m"], Float[Tensor, "m C"]]:
    """Return indices and tokens in the sequence with a newline after every row; rows without tokens have none."""
    newlines = newlines_of_used_rows(made.index, columns)
    return insert_newlines(made.index, made.tokens, newlines, columns, newline)


def mean_query_attention(
    queries: Float[Tensor, "heads P h"], keys: Float[Tensor, "heads P h"], frames: int, merged: int
) -> Float[Tensor, "T N"]:
    """Return the attention of each frame's mean query to its mean keys, averaged over heads, as for Qwen2.5-VL.

    Queries and keys have rotary positions and are in the encoder's order, where `merged` neighbours form one token.
    """
    query, key = (each.to(working_dtype(each.dtype)).unflatten(1, (frames, -1)) for each in (queries, keys))
    key = key.unflatten(2, (-1, merged)).mean(3)
    logits = torch.einsum("atd,atnd->atn", query.mean(2), key) / key.shape[-1] ** 0.5
    return logits.softmax(-1).mean(0)


class FastVID(BudgetedMethod):
    """FastVID: dynamic density pruning (NeurIPS 2025, 2503.11187).

    The video is cut into segments where neighbouring frames differ. Each frame keeps the tokens that the encoder
    attends to most, and some frames of a segment keep density peaks among the others, each averaged with the segment's
    tokens that are most similar to it. Counts, sources and defaults are those of the LLaVA-OneVision integration,
    without random noise on densities. That integration loads SigLIP's pooling head for the attention and for a vector
    per frame; this method takes the attention of the encoder's last layer and the mean token of a frame, as the
    integration for Qwen2.5-VL does for its vectors.

    Retention in the paper is the parameter r; a frame gets the truncated N r tokens ("10%" of 196 are 19), and what
    does not divide evenly among anchors is lost. Here that number is the largest whose total is within the budget. At
    one token per frame there are only salient ones, and below it the least attended of these are dropped. Where the
    reference fails, for fewer frames than segments or fewer tokens than anchors or neighbours, there are fewer of
    these.
    """

    name = "fastvid"
    title = "FastVID"
    needs = frozenset({"attention"})
    replayable = False  # segments depend on the video

    parameters = FastVidParameters()

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Find the number of tokens per frame that the limit allows."""
        x, attention = video.features, video.extras["attention"].to(video.features.device)
        count = self.count_within(x, limit)
        if not count:
            return Compressed.kept(video, most_attended_of_frames(attention, limit))
        made = fastvid(x, attention, None, self.parameters, count)
        return merged(video, made.sources, made.tokens)

    def count_within(self, x: Float[Tensor, "T N C"], limit: int) -> int:
        """Return the largest number of tokens per frame whose total is within the limit."""
        of = self.parameters
        similarity = neighbour_cosines(x.to(working_dtype(x.dtype)).mean(1))
        segments, alike = cut_segments(similarity, of.segments, of.threshold), similarity.tolist()

        def total(count: int) -> int:
            plan = plan_of(segments, alike, count, x.shape[1], of)
            return sum(plan.salient) + sum(plan.anchors)

        return bisect_right(range(x.shape[1] + 1), limit, key=total) - 1
