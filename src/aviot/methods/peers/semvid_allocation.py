"""SemVID's first stage: how many tokens each frame keeps, by its relevance and motion."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from aviot.methods.peers.segments import cut_segments
from aviot.methods.peers.shares import NOTHING, capped_shares, integer_shares

LEAST_NORM = 1e-6
LEAST_WEIGHT = 1e-6  # of a segment, if none is relevant


@dataclass(frozen=True, kw_only=True)
class AnchorParameters:
    """Parameters that the authors' program for Qwen2.5-VL adds; the defaults are those for grounding.

    `boost` tokens more go to frames at the borders of segments, at the most relevant one and at both ends of the video.
    Of more than one context token, up to `uniform_context` lie on a regular grid. `corners` (2 or 4; 0: none) tokens
    nearest the corners of the box around the `candidates` most relevant ones are kept as objects, if the best one's
    relevance is at least `least_relevance`.
    """

    boost: int = 2
    uniform_context: int = 1
    corners: int = 4
    candidates: int = 160
    least_relevance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SemVidParameters:
    """The method's parameters; the defaults are the authors' for temporal grounding with Qwen3-VL.

    `retention` is the share of all tokens that stays. A video is cut at the `segments - 1` least similar neighbouring
    frames and at cosines below `segment_threshold`; only the `best_segments` most relevant ones get more than the least
    (0: all do). Relevance is averaged over `smoothing` frames and weighs `relevance_weight` against motion. Each frame
    keeps `least_per_frame` tokens or more. Of those after the context, `object_share` are objects, for which relevance
    weighs `variety_weight` against repetition (lambda), and the rest show motion, in which relevance weighs
    `motion_relevance`. A question of more than `query_tokens` tokens is averaged. With `uniform`, an ablation of the
    authors', all frames keep the same number.
    """

    retention: float = 0.125
    segments: int = 0
    segment_threshold: float = 0.0
    best_segments: int = 0
    smoothing: int = 1
    relevance_weight: float = 0.7
    object_share: float = 0.6
    variety_weight: float = 0.9
    least_per_frame: int = 0
    motion_relevance: float = 0.5
    query_tokens: int = 50
    uniform: bool = False
    anchors: AnchorParameters | None = None

    def base(self, patches: int) -> int:
        """Return the number of tokens that every frame keeps at least."""
        return max(min(self.least_per_frame, patches), 1)


@dataclass(frozen=True, eq=False)
class FrameSignals:
    """Each frame's relevance to the question and motion, and the lengths of the segments that frames form."""

    relevance: Float[Tensor, "T"]
    motion: Float[Tensor, "T"]
    lengths: tuple[int, ...]


def unit(vectors: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Return vectors of length one in float32; nearly zero ones stay short."""
    own = vectors.float()
    return own / own.norm(dim=-1, keepdim=True).clamp(min=LEAST_NORM)


def frame_signals(
    frames: Float[Tensor, "T D"], query: Float[Tensor, "*L D"], parameters: SemVidParameters
) -> FrameSignals:
    """Read frames of unit length with a query: rows of unit length, one per token, or one vector for all."""
    rows = query if query.ndim == 2 else query[None]
    likeness = (frames @ rows.mT).topk(min(2, len(rows)), dim=1).values.mean(1)
    moved = (frames[1:] - frames[:-1]).norm(dim=-1)
    motion = torch.cat((moved[:1], moved)) if len(frames) > 1 else torch.zeros_like(likeness)
    neighbours = (frames[1:] * frames[:-1]).sum(-1).cpu()
    lengths = cut_segments(neighbours, parameters.segments, parameters.segment_threshold)
    return FrameSignals(smooth(likeness.cpu(), parameters.smoothing), motion.cpu(), lengths)


def smooth(values: Float[Tensor, "T"], window: int) -> Float[Tensor, "T"]:
    """Return moving averages over an odd number of values, the ends repeated."""
    if window <= 1 or len(values) < 3:
        return values
    odd = min(window + 1 - window % 2, len(values) - 1 + len(values) % 2)
    return avg_pool1d(pad(values[None, None], (odd // 2, odd // 2), mode="replicate"), odd, stride=1)[0, 0]


def allocate(signals: FrameSignals, patches: int, parameters: SemVidParameters) -> Int[Tensor, "T"]:
    """Return the number of tokens that each frame keeps, on the CPU."""
    frames, base = len(signals.relevance), parameters.base(patches)
    total = min(max(round(frames * patches * parameters.retention), frames * base), frames * patches)
    if parameters.uniform:
        keep = torch.full((frames,), total // frames)
        keep[[number * frames // (total % frames) for number in range(total % frames)]] += 1
        return keep
    weights = segment_weights(signals, parameters.best_segments)
    own = parameters.relevance_weight * signals.relevance.clamp(min=0)
    own = own + (1 - parameters.relevance_weight) * signals.motion
    extra = integer_shares(weights, torch.tensor(total - frames * base))
    keep = (base + shares_within(own, extra, signals.lengths)).clamp(max=patches)
    lost = total - int(keep.sum())
    if lost > 0:
        slack = patches - keep
        scaled = own * slack
        keep = keep + capped_shares(slack.float() if scaled.sum() < NOTHING else scaled, lost, slack)
    if parameters.anchors is not None and frames > 1:
        keep = move_to_anchors(keep, anchor_frames(signals, weights), parameters.anchors.boost, base, patches)
    return keep


def segment_weights(signals: FrameSignals, best: int) -> Float[Tensor, "G"]:
    """Return each segment's mean relevance; zero for all but the best ones, if a number of them is given."""
    score = torch.stack([part.mean() for part in signals.relevance.split(signals.lengths)])
    weights = score.clamp(min=0)
    if weights.sum() < NOTHING:
        weights = score - score.min() + LEAST_WEIGHT
    if 0 < best < len(weights):
        rank = weights.argsort(descending=True, stable=True).argsort()
        weights = weights.masked_fill(rank >= best, 0.0)
    return weights


def shares_within(weights: Float[Tensor, "T"], totals: Int[Tensor, "G"], lengths: tuple[int, ...]) -> Int[Tensor, "T"]:
    """Return each frame's share of its segment's total."""
    inside = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    padded = torch.zeros(inside.shape).masked_scatter_(inside, weights)
    return integer_shares(padded, totals, inside)[inside]


def anchor_frames(signals: FrameSignals, weights: Float[Tensor, "G"]) -> Int[Tensor, "n"]:
    """Return the frames at both ends, the most relevant one, and those at the borders of segments with weight."""
    lengths = torch.tensor(signals.lengths)
    ends, chosen = lengths.cumsum(0), weights > 0
    last = len(signals.relevance) - 1
    some = torch.stack((torch.tensor(0), torch.tensor(last), signals.relevance.argmax()))
    return torch.cat((some, (ends - lengths)[chosen], ends[chosen] - 1)).unique()


def move_to_anchors(
    keep: Int[Tensor, "T"], anchors: Int[Tensor, "n"], boost: int, base: int, patches: int
) -> Int[Tensor, "T"]:
    """Return counts with up to `boost` more at the anchors, taken from the other frames above their least."""
    at = torch.zeros_like(keep, dtype=torch.bool).index_fill(0, anchors, True)
    want = (patches - keep).clamp(max=boost).masked_fill(~at, 0)
    give = (keep - base).clamp(min=0).masked_fill(at, 0)
    moved = min(int(want.sum()), int(give.sum()))
    if moved <= 0:
        return keep
    if moved < int(want.sum()):
        want = capped_shares(want.float(), moved, want)
    return keep + want - capped_shares(give.float(), moved, give)
