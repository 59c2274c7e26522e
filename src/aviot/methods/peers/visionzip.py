"""VisionZip: per frame, the tokens that the encoder attends to, and a few that add up what is left."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod, most_attended_of_frames
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.merged import Sources, merged
from aviot.methods.peers.newline_indices import insert_newlines, row_newlines

DOMINANT = 54 / 64
"""Share of dominant tokens in those of a frame: 54 of 64 in the authors' README, and in the program for video."""

NORM_FLOOR = 1e-12


@dataclass(frozen=True, eq=False)
class VisionZipTokens:
    """The result for frames or pictures of N tokens: first their dominant tokens, then their contextual ones.

    `ranked` are the positions of the dominant tokens, the most attended first; the tokens themselves are in the order
    of positions. `others` are the remaining positions and `choice` the contextual token that each belongs to; those at
    `others[:, targets]` are the targets, which own them.
    """

    tokens: Float[Tensor, "T S C"]
    ranked: Int[Tensor, "T d"]
    others: Int[Tensor, "T m"]
    targets: Int[Tensor, "c"]
    choice: Int[Tensor, "T m"]

    @property
    def dominant(self) -> Int[Tensor, "T d"]:
        """The positions of the dominant tokens, ascending."""
        return self.ranked.sort(1).values

    @property
    def contextual(self) -> Int[Tensor, "T c"]:
        """The positions of the targets, ascending."""
        return self.others[:, self.targets]

    @cached_property
    def sources(self) -> Sources:
        """The sources of every token, frame by frame: a contextual one is its target plus the mean of the others."""
        frames, kept = self.tokens.shape[:2]
        dominant, device = self.dominant, self.tokens.device
        patches = dominant.shape[1] + self.others.shape[1]
        joined = torch.zeros(frames, kept, device=device).scatter_add_(
            1, self.choice + dominant.shape[1], torch.ones(self.choice.shape, device=device)
        )
        joined[:, dominant.shape[1] :] -= 1  # the targets
        weights = (1 / joined.clamp_min(1)).gather(1, self.choice + dominant.shape[1])
        weights[:, self.targets] = 1
        place = torch.arange(dominant.shape[1], device=device).expand_as(dominant)
        frame = torch.arange(frames, device=device)[:, None]
        token = frame * kept + torch.cat((place, self.choice + dominant.shape[1]), 1)
        source = frame * patches + torch.cat((dominant, self.others), 1)
        weights = torch.cat((torch.ones_like(dominant, dtype=weights.dtype), weights), 1)
        return Sources(token.flatten(), source.flatten(), weights.flatten())


def split_tokens(count: int, share: float = DOMINANT) -> tuple[int, int]:
    """Return how many of a frame's tokens are dominant, truncated, and how many contextual."""
    return int(count * share), count - int(count * share)


def visionzip(
    x: Float[Tensor, "T N C"],
    attention: Float[Tensor, "T N"],
    keys: Float[Tensor, "T N h"],
    dominant: int,
    contextual: int,
) -> VisionZipTokens:
    """Keep each frame's most attended tokens, and add up the others in evenly spaced ones of them."""
    return zip_tokens(x, attention.argsort(dim=1, descending=True, stable=True)[:, :dominant], keys, contextual)


def visionzip_image(
    hidden: Float[Tensor, "B N C"],
    class_attention: Float[Tensor, "B heads N-1"],
    keys: Float[Tensor, "B N h"],
    dominant: int,
    contextual: int,
) -> VisionZipTokens:
    """Do the same as the original for CLIP, before the projector: token 0 is the class token, which stays.

    `class_attention` is that of the class token to the patches. The class token is one of the `dominant` ones.
    """
    best = class_attention.sum(1).argsort(dim=1, descending=True, stable=True)[:, : dominant - 1] + 1
    return zip_tokens(hidden, torch.cat((torch.zeros_like(best[:, :1]), best), 1), keys, contextual)


def zip_tokens(
    x: Float[Tensor, "T N C"], ranked: Int[Tensor, "T d"], keys: Float[Tensor, "T N h"], contextual: int
) -> VisionZipTokens:
    """Keep the `ranked` tokens unchanged, and make contextual ones of all others.

    Evenly spaced tokens of the others are targets. Each one that is left goes to the target with the most similar key
    (cosine; the first of equal ones), and a target becomes the sum of itself and the mean of what it gets. The original
    does not divide that sum, so that contextual tokens are about twice as large as others.
    """
    (frames, patches, channels), dtype = x.shape, working_dtype(x.dtype)
    dominated = torch.zeros(frames, patches, dtype=torch.long, device=x.device).scatter_(1, ranked, 1)
    others = dominated.argsort(dim=1, stable=True)[:, : patches - ranked.shape[1]]
    step = max(1, others.shape[1] // contextual)
    targets = torch.arange(contextual, device=x.device) * step
    choices, tokens = [], []
    chunk = chunk_size(patches * max(channels, keys.shape[2], contextual))
    for part, key, kept, rest in zip(*(each.split(chunk) for each in (x, keys, ranked, others)), strict=True):
        unit = normalize(_rows(key, rest).to(dtype), dim=-1, eps=NORM_FLOOR)
        choice = (unit @ unit[:, targets].mT).argmax(-1)
        choice[:, targets] = torch.arange(contextual, device=x.device)
        joins = one_hot(choice, contextual).to(dtype)
        joins[:, targets] = 0
        values = _rows(part, rest).to(dtype)
        means = joins.mT @ values / joins.sum(1).clamp_min(1)[..., None]
        summed = (values[:, targets] + means).to(x.dtype)
        tokens.append(torch.cat((_rows(part, kept.sort(1).values), summed), 1))
        choices.append(choice)
    return VisionZipTokens(torch.cat(tokens), ranked, others, targets, torch.cat(choices))


def _rows(values: Float[Tensor, "T N C"], index: Int[Tensor, "T k"]) -> Float[Tensor, "T k C"]:
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))


def with_newlines_of_grid(
    made: VisionZipTokens, grid: tuple[int, int], newline: Float[Tensor, "C"]
) -> Float[Tensor, "m C"]:
    """Return the tokens in LLaVA-Video's sequence, where a newline follows every row, empty ones too.

    The program for LLaVA-Video pairs dominant tokens, in the order of positions, with positions in the order of
    attention: the right cells are taken, but by each other's tokens. This function does the same.
    """
    rows, columns = grid
    frames = len(made.tokens)
    cells = torch.cat((made.ranked, made.contextual), 1)
    index = (torch.arange(frames, device=cells.device)[:, None] * rows * columns + cells).flatten()
    newlines = row_newlines(torch.arange(frames * rows, device=cells.device), columns)
    return insert_newlines(index, made.tokens.flatten(0, 1), newlines, columns, newline)[1]


class VisionZip(BudgetedMethod):
    """VisionZip for video (CVPR 2025, arXiv 2412.04467), as the authors of HoliTom adapted it; each frame by itself.

    A frame keeps the tokens that the encoder attends to most (54 of 64; dominant ones), unchanged. Of the others,
    evenly spaced ones are targets, to which the rest are added by the similarity of the encoder's keys. A contextual
    token is its target plus the mean of what it gets, a sum that neither program divides: it is about twice as large as
    others, and the weights of its sources sum to two. So it is with deepstack features, where a family has them.

    Retention in the paper is the number of tokens per frame, S, over N: "10%" is 20 of 196 for LLaVA-OneVision, and all
    S enter the decoder. Here S is the largest number whose total is within the budget; what does not divide evenly
    among the frames is not used. Below one token per frame, the most attended tokens of the frames stay, in as many
    frames as allowed.

    Published figures for LLaVA-OneVision and LLaVA-Video belong to this variant. That for LLaVA-Video also permutes the
    dominant tokens of a frame; here all stand at their own places, and contextual ones at the mean place of their
    sources (`with_newlines_of_grid` has the permuted sequence). Rows named VisionZip for Qwen3-VL come from another
    program, without attention. The original for CLIP's pictures is `visionzip_image`.
    """

    name = "visionzip"
    title = "VisionZip"
    needs = frozenset({"attention", "attention_keys"})

    def __init__(self, share: float = DOMINANT) -> None:
        if not 0 <= share < 1:
            raise ValueError(f"share of dominant tokens must be at least 0 and below 1, got {share!r}")
        self.share = share

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """Add the share of dominant tokens."""
        return *super().replay_key, self.share

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Keep equally many tokens of every frame."""
        attention, keys = (video.extras[name].to(video.features.device) for name in ("attention", "attention_keys"))
        count = limit // video.frames
        if not count:
            return Compressed.kept(video, most_attended_of_frames(attention, limit))
        made = visionzip(video.features, attention, keys, *split_tokens(count, self.share))
        return merged(video, made.sources, made.tokens.flatten(0, 1))
