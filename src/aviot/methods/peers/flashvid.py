"""FlashVID before the decoder: attended, diverse tokens of each frame, and trees of the others over time."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import ParameterizedMethod
from aviot.methods.peers.flashvid_selection import Selection, diverse_tokens, segment_cuts, segment_means
from aviot.methods.peers.flashvid_trees import Segments, best_before, links, merge_trees, survivors
from aviot.methods.peers.merged import Sources, merged


@dataclass(frozen=True, kw_only=True)
class FlashVidParameters:
    """The published parameters of LLaVA-OneVision and LLaVA-Video; `QWEN` has those of Qwen's models.

    A frame gets the share `retention * expansion` of its tokens, rounded up; of these `selected` are chosen and the
    others merged. `link` is the cosine above which a token joins one of the frame before.
    """

    retention: float = 0.25
    expansion: float = 1.25
    selected: float = 0.7
    selection: Selection = "attn_div_v2"
    link: float = 0.8
    segmented: bool = True  # otherwise the whole video is one segment
    cut: float = 0.9  # cosine of neighbouring frames below which a segment ends
    segments: int = 8  # least number of segments
    complementary: bool = True  # whether the least number of segments is enforced

    def __post_init__(self) -> None:
        if self.selection not in ("attn_div", "attn_div_v2"):
            raise ValueError(f"selection must be 'attn_div' or 'attn_div_v2', got {self.selection!r}")

    def per_frame(self, patches: int) -> int:
        """Return the number of tokens per frame, selected and merged ones together."""
        return min(patches, math.ceil(patches * self.retention * self.expansion))


PUBLISHED = FlashVidParameters()
QWEN = FlashVidParameters(selection="attn_div", segments=4)


@dataclass(frozen=True, eq=False)
class FlashVidTokens:
    """The result: lengths of segments, flat indices in ascending order, the tokens there, and their sources."""

    lengths: Int[Tensor, "g"]
    index: Int[Tensor, "n"]
    tokens: Float[Tensor, "n D"]
    sources: Sources


def flashvid(
    x: Float[Tensor, "T N D"],
    attention: Float[Tensor, "T N"],
    parameters: FlashVidParameters = PUBLISHED,
    count: int | None = None,
) -> FlashVidTokens:
    """Return selected tokens unchanged and merged ones; an index can occur twice.

    `count` is the number of tokens per frame; by default that of the parameters' retention.
    """
    of, (frames, patches, _), device = parameters, x.shape, x.device
    count = of.per_frame(patches) if count is None else count
    chosen = math.ceil(count * of.selected)
    means = x.to(working_dtype(x.dtype)).mean(1)
    cuts = torch.zeros(frames - 1, dtype=torch.long, device=device)
    if of.segmented:
        cuts = segment_cuts(means, of.cut, of.segments, complementary=of.complementary)
    number = torch.cat((cuts.new_zeros(1), (cuts > 0).cumsum(0)))
    segments = Segments(number, torch.bincount(number)[number])
    picked = diverse_tokens(x, attention, segment_means(means, number), chosen, of.selection)
    index = (picked + patches * torch.arange(frames, device=device)[:, None]).flatten()
    tokens = x.flatten(0, 1)[index].to(means.dtype)
    own = torch.arange(len(index), device=device)
    sources = [Sources(own, index, torch.ones(len(index), dtype=means.dtype, device=device))]
    if count > chosen and of.link < 1:
        selected = torch.zeros((frames, patches), dtype=torch.bool, device=device).scatter_(1, picked, True)
        similarity, parent = best_before(x, selected, number)
        linked = links(similarity, segments, of.link, count)
        roots = survivors(linked, parent, selected, segments.length == 1, means.dtype)
        centres, merged_tokens, members = merge_trees(x, *roots, segments, count - chosen)
        sources.append(members._replace(token=members.token + len(index)))
        index, tokens = torch.cat((index, centres)), torch.cat((tokens, merged_tokens.to(tokens)))
    order = index.argsort(stable=True)
    token, source, weight = (torch.cat(parts) for parts in zip(*sources, strict=True))
    return FlashVidTokens(
        lengths_of(cuts), index[order], tokens[order].to(x.dtype), Sources(order.argsort()[token], source, weight)
    )


def lengths_of(cuts: Int[Tensor, "T-1"]) -> Int[Tensor, "g"]:
    """Return the lengths of segments, zero for those between two cuts at one place."""
    ends = torch.arange(len(cuts), device=cuts.device).repeat_interleave(cuts)
    return torch.cat((ends.new_tensor([-1]), ends, ends.new_tensor([len(cuts)]))).diff()


class FlashVID(ParameterizedMethod[FlashVidParameters]):
    """FlashVID before the decoder (ICLR 2026, arXiv 2602.08024): diverse tokens, and trees of the others over time.

    Seven tenths of each frame's tokens are picked one after another, far from each other and attended to. The others
    join their most similar token of the frame before, within segments of similar frames; the roots of these trees are
    clustered in space. Defaults are those of the LLaVA integration, whose selection may pick a token twice; the one for
    Qwen is `FlashVID(QWEN)`. Densities have no random noise here.

    Three things follow the code because the published figures depend on them. A root is the sum of its tree over one
    plus its direct children, so that in trees of three frames or more weights sum to more than one, and the token is
    longer than a mean. A segment of one frame clusters all of its tokens, selected ones included. Counts of clusters
    are rounded up frame by frame.

    Retention R in the paper is a mean over the decoder's layers of both stages: at "10%", 12.5% of the tokens enter,
    and 3.75% are left from layer 20 on (`flashvid-full`, which is the published method; every published figure is of
    both stages). Here the budget counts what enters: `flashvid-full` at 12.5% is the paper's 10%. The number of tokens
    per frame is the largest one whose total is within the budget. Below one token per frame, the least attended of
    these are dropped.
    """

    name = "flashvid"
    title = "FlashVID"
    needs = frozenset({"attention"})
    replayable = False  # segments and trees depend on the video

    def __init__(self, parameters: FlashVidParameters = PUBLISHED) -> None:
        super().__init__(parameters)

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Take as many tokens per frame as the limit allows, one less if rounding up exceeds it."""
        attention = video.extras["attention"].to(video.features.device)
        count = max(1, limit // video.frames)
        made = flashvid(video.features, attention, self.parameters, count)
        if len(made.index) > limit and count > 1:
            made = flashvid(video.features, attention, self.parameters, count - 1)
        if len(made.index) > limit:
            best = attention.flatten()[made.index].argsort(descending=True, stable=True)[:limit]
            return Compressed.kept(video, made.index[best].sort().values)
        return merged(video, made.sources, made.tokens)
