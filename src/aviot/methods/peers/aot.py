"""AOT: anchors that take up other tokens by transport, first inside each frame, then over the frames of a clip."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed, grid_positions
from aviot.methods.features import TokenMixture, VideoFeatures
from aviot.methods.peers.aot_anchors import anchor_mask, anchor_weights, mixed, pooled_weights, rank_in_window
from aviot.methods.peers.aot_clips import Clips, merge_clips
from aviot.methods.peers.budgeted import ParameterizedMethod, largest_within

POOLED_FROM = 0.5  # share of a pooled cell that anchors must have for it to stay
LONG = 64  # frames from which clips have eight instead of four, as in the published settings for 32 and 64 frames


@dataclass(frozen=True, kw_only=True)
class AotParameters:
    """The published parameters of LLaVA-OneVision on MVBench and EgoSchema.

    VideoMME and LongVideoBench have 108 anchors and 0.1 `kept`; LLaVA-Video has 180 and does not merge over time.
    `kept` is the share of later frames' tokens that is not merged, `clip` the frames of a clip (None: 4, or 8 from 64
    frames on).
    """

    anchors: int = 126
    global_share: float = 0.5
    kept: float = 0.3
    scale: float = 1.0
    clip: int | None = None
    merges: bool = True

    def clip_length(self, frames: int) -> int:
        """Return the frames of a clip; one if nothing is merged over time."""
        if not self.merges:
            return 1
        return self.clip or (8 if frames >= LONG else 4)


PUBLISHED = AotParameters()


@dataclass(frozen=True, eq=False)
class AotTokens:
    """The result: which tokens were anchors, which pooled cells stayed, the tokens clip by clip, and their mixtures.

    `weights` are the weights of a frame's tokens in its pooled cells that stayed, padded to equally many per frame.
    """

    anchors: Bool[Tensor, "T P"]
    pooled: Bool[Tensor, "T S"]
    clips: Clips
    weights: Float[Tensor, "T k P"]

    @property
    def tokens(self) -> Float[Tensor, "n D"]:
        """The tokens, in the original's order."""
        return self.clips.tokens[self.clips.exists]


def pooled_mask(anchors: Bool[Tensor, "T P"], pooling: Float[Tensor, "S P"]) -> Bool[Tensor, "T S"]:
    """Return which cells stay: those that are at least half anchors, and in a frame without any the one nearest to it.

    The original fails where a clip's first frame has none.
    """
    share = anchors.to(pooling) @ pooling.T
    best = torch.zeros_like(share, dtype=torch.bool).scatter_(1, share.argmax(1, keepdim=True), True)
    return (share >= POOLED_FROM) | (best & (share < POOLED_FROM).all(1, keepdim=True))


def padded_cells(mask: Bool[Tensor, "T S"]) -> tuple[Int[Tensor, "T k"], Bool[Tensor, "T k"]]:
    """Return each frame's cells in a mask, padded to equally many, and which of them are real."""
    counts = mask.sum(1, keepdim=True)
    most = int(counts.max())
    cells = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
    return cells, torch.arange(most, device=mask.device) < counts


def aot(
    x: Float[Tensor, "T P D"],
    shallow: Float[Tensor, "T P"],
    deep: Float[Tensor, "T P"],
    pooling: Float[Tensor, "rows columns P"],
    grid: tuple[int, int],
    parameters: AotParameters = PUBLISHED,
) -> AotTokens:
    """Return what stays of tokens before pooling; attention is that received in a shallow and a deep layer."""
    anchors = anchor_mask(rank_in_window(shallow, grid), deep, parameters.anchors, parameters.global_share)
    flat = pooling.flatten(0, 1).to(working_dtype(x.dtype))
    stays = pooled_mask(anchors, flat)
    cells, real = padded_cells(stays)
    weights = mixed_weights(x, anchors, flat, cells, grid)
    tokens = mixed(weights, x) * real[..., None]
    length = parameters.clip_length(len(x))
    missing = -len(x) % length
    together = [torch.cat((part, part.new_zeros(missing, *part.shape[1:]))) for part in (tokens, real)]
    by_clip, exists = (part.unflatten(0, (-1, length)) for part in together)
    return AotTokens(anchors, stays, merge_clips(by_clip, exists, parameters.kept, parameters.scale), weights)


def mixed_weights(
    x: Float[Tensor, "T P D"],
    anchors: Bool[Tensor, "T P"],
    pooling: Float[Tensor, "S P"],
    cells: Int[Tensor, "T k"],
    grid: tuple[int, int],
) -> Float[Tensor, "T k P"]:
    """Return the weights of each frame's tokens in pooled cells, with what anchors take up inside the frame."""
    if bool(anchors[0].all()):
        return pooling[cells]
    return pooled_weights(pooling, cells, *anchor_weights(x, anchors, grid))


def result(made: AotTokens, video: VideoFeatures) -> Compressed:
    """Return tokens with positions and mixtures, which are made of their weights on first use."""
    grid, times, clips, weights = video.grid, video.times, made.clips, made.weights  # closures must not hold features

    def positions() -> Float[Tensor, "n 3"]:
        row, column = grid_positions(grid, torch.arange(weights.shape[2], device=weights.device))
        place = weights @ torch.stack((row, column), 1).to(weights)
        seconds = torch.tensor(times, dtype=weights.dtype, device=weights.device)[:, None, None].expand(
            -1, weights.shape[1], 1
        )
        own = _by_clip(torch.cat((seconds, place), 2), clips)
        last = torch.einsum("gklm,glmd->gkd", clips.shares, own)
        return torch.cat((own, last[:, None]), 1)[clips.exists].float()

    tokens = made.tokens.to(video.features.dtype)
    return Compressed(tokens, grid, positions, lambda: _mixture(clips, weights), frame_times=times)


def _by_clip(values: Float[Tensor, "T k d"], clips: Clips) -> Float[Tensor, "G L k d"]:
    count, length = len(clips.shares), clips.shares.shape[2]
    return torch.cat((values, values.new_zeros(count * length - len(values), *values.shape[1:]))).unflatten(
        0, (count, length)
    )


def _mixture(clips: Clips, weights: Float[Tensor, "T k P"]) -> TokenMixture:
    """Return every token's mixture: of its frame's tokens; of its clip's for the first frame's after merging."""
    (frames, _, patches), length = weights.shape, clips.shares.shape[2]
    device, own = weights.device, _by_clip(weights, clips)
    clip, slot, number = torch.nonzero(clips.exists, as_tuple=True)
    alone = slot < length
    wide = patches * (length if bool((~alone).any()) else 1)
    shares, indices = weights.new_zeros(len(clip), wide), torch.zeros(len(clip), wide, dtype=torch.long, device=device)
    shares[alone, :patches] = own[clip[alone], slot[alone], number[alone]]
    indices[alone, :patches] = (clip * length + slot)[alone, None] * patches + torch.arange(patches, device=device)
    if wide > patches or length == 1:
        last = torch.einsum("gklm,glmp->gklp", clips.shares, own)
        shares[~alone] = last[clip[~alone], number[~alone]].flatten(1)[:, :wide]
        every = clip[~alone, None] * length * patches + torch.arange(wide, device=device)
        indices[~alone] = every.clamp_max(frames * patches - 1)  # of frames that a last clip does not have: weight 0
    return TokenMixture(indices, shares, frames, patches)


def pooled_only(video: VideoFeatures, index: Int[Tensor, "n"]) -> Compressed:
    """Return pooled cells unchanged, by flat index on the pooled grid."""
    pooling = video.extras["pooling"].flatten(0, 1).to(video.features.device, working_dtype(video.features.dtype))
    frame, cell = torch.div(index, video.cells, rounding_mode="floor"), index % video.cells
    weights, sources = pooling.topk(int((pooling != 0).sum(1).max()), dim=1)
    mixture = TokenMixture(frame[:, None] * video.patches + sources[cell], weights[cell], video.frames, video.patches)
    tokens = mixed(pooling.expand(video.frames, -1, -1), video.features).flatten(0, 1)[index]
    return Compressed.mixed(video, mixture, tokens.to(video.features.dtype))


@dataclass(frozen=True)
class ClipCounts:
    """Numbers of cells that stay: those of clips' first frames, twice where others follow, and of later frames.

    `later` counts the later frames by their number of cells.
    """

    first: int
    later: Counter[int]

    @classmethod
    def of(cls, cells: Sequence[int], length: int) -> Self:
        """Count the cells of each frame by clips of this length."""
        later = [count for place, count in enumerate(cells) if place % length]
        alone = cells[-1] if len(cells) % length == 1 or length == 1 else 0
        first = sum(cells[::length])
        return cls(first if length == 1 else 2 * first - alone, Counter(later))

    def tokens(self, kept: float) -> int:
        """Return the number of tokens if this share of later frames' is kept; fewer if some are equally similar."""
        return self.first + sum(frames * math.ceil(kept * (cells - 1)) for cells, frames in self.later.items())


class AOT(ParameterizedMethod[AotParameters]):
    """AOT (CVPR 2026, arXiv 2603.01400): anchors by attention, which take up other tokens by optimal transport.

    On the grid before pooling, the tokens that are attended to most in a shallow layer (equally many in each of nine
    windows) and in a deep one are anchors. The others of the frame are mixed into them, the map is pooled, and the
    cells stay that are at least half anchors. Then, clip by clip, tokens of later frames that are transported to few of
    the first frame's are merged into these, and the others stay. Nothing happens inside the decoder.

    Retention in the paper is the share of pooled tokens that enters the decoder, but no setting: it follows from the
    number of anchors V, from the share kept of later frames, and from how scattered the attention is (V = 126 and 0.3
    give about 10%). Here V is the largest number whose tokens are within the budget; then the share kept is raised as
    far as they still are. Clips have four frames, and eight from 64 frames on: the paper's lengths for 32 and 64
    frames, the only numbers that its code takes. A last clip can be shorter. If even one anchor per frame is too much,
    the cells that are attended to most in the deep layer stay, unchanged.

    The code is followed where it departs from the paper: transport inside a frame hardly moves anything, because its
    plan is not normalised; a tenth of an anchor is the mean with its nearest tokens; iterations stop early, in the
    first stage for all frames together; and the first frame's tokens are returned twice, before and after merging.
    """

    name = "aot"
    title = "AOT"
    needs = frozenset({"attention_shallow", "attention_deep"})
    before_pooling = True
    replayable = False  # counts depend on the video

    def __init__(self, parameters: AotParameters = PUBLISHED) -> None:
        super().__init__(parameters)

    def everything(self, video: VideoFeatures) -> Compressed:
        """Return every pooled cell."""
        return pooled_only(video, torch.arange(video.frames * video.cells, device=video.features.device))

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Choose the number of anchors by the limit, then the share that is kept of later frames."""
        of, x, extras = self.parameters, video.features, video.extras
        shallow, deep = (extras[name].to(x.device).float() for name in ("attention_shallow", "attention_deep"))
        pooling = extras["pooling"].to(x.device, working_dtype(x.dtype))
        flat, ranked, length = pooling.flatten(0, 1), rank_in_window(shallow, video.grid), of.clip_length(video.frames)

        def counts(anchors: int) -> ClipCounts:
            cells = pooled_mask(anchor_mask(ranked, deep, anchors, of.global_share), flat)
            return ClipCounts.of(cells.sum(1).tolist(), length)

        possible = range(1, video.patches + 1)
        anchors = bisect_right(possible, limit, key=lambda count: counts(count).tokens(of.kept))
        if not anchors:
            best = (deep @ flat.float().T).flatten().argsort(descending=True, stable=True)[:limit]
            return pooled_only(video, best.sort().values)
        kept = largest_within(counts(anchors).tokens, limit, of.kept, 1.0)
        return result(aot(x, shallow, deep, pooling, video.grid, replace(of, anchors=anchors, kept=kept)), video)
