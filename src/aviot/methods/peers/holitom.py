"""HoliTom before the decoder: what stays the same over time is averaged and clustered, the rest is pruned."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import ParameterizedMethod, largest_within, most_attended_of_frames
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.density_peaks import density_peaks, ranks
from aviot.methods.peers.holitom_windows import Windows, divide
from aviot.methods.peers.merged import Sources, merged
from aviot.methods.peers.newline_indices import insert_newlines, newlines_of_used_rows


@dataclass(frozen=True)
class HoliTomParameters:
    """The parameters of the published scripts; their threshold is 0.65 for 10% retention and 0.8 for more.

    A position is static from one frame to the next if the cosine of its tokens is above `threshold`. A centre keeps
    `own_weight` of itself when it takes up others, densities are means over `neighbours` tokens, and a window has at
    most `longest` frames.
    """

    threshold: float = 0.8
    own_weight: float = 0.6
    neighbours: int = 7
    longest: int = 1024


PUBLISHED = HoliTomParameters()
LOW_RETENTION = HoliTomParameters(threshold=0.65)
LOW = 0.125  # share of tokens below which `LOW_RETENTION` holds, between the published 10% and 15%


@dataclass(frozen=True, eq=False)
class HoliTomTokens:
    """The result: tokens window by window, static ones first, then the others frame by frame, each row by row.

    `index` is each token's flat index; that of a static token lies in the first frame of its window.
    """

    index: Int[Tensor, "n"]
    is_static: Bool[Tensor, "n"]
    tokens: Float[Tensor, "n C"]
    sources: Sources


@dataclass(frozen=True, eq=False)
class Static:
    """The static positions of each window after pruning.

    `centre` are those that stay, and `tokens` these, window by window. Position n joins the centre at `target[g, n]`,
    and its mean over time has the weight `share[g, n]` there: zero where it is not static or nothing stays.
    """

    centre: Bool[Tensor, "G N"]
    target: Int[Tensor, "G N"]
    share: Float[Tensor, "G N"]
    tokens: Float[Tensor, "n C"]


def holitom(
    x: Float[Tensor, "T N C"],
    attention: Float[Tensor, "T N"],
    windows: Windows,
    ratio: float,
    parameters: HoliTomParameters = PUBLISHED,
) -> HoliTomTokens:
    """Keep the share `ratio` of what is left once every window's static positions are averaged over its frames.

    Of each frame's dynamic tokens the most attended stay, unchanged. Static tokens of a window are clustered by density
    peaks and merged into the centres.
    """
    static_counts, dynamic_counts = windows.counts(ratio)
    window = windows.of_frames
    keep = torch.from_numpy(dynamic_counts).to(x.device)[window]
    kept = ranks(attention.masked_fill(windows.static[window], -torch.inf)) < keep[:, None]
    return _arranged(x, windows, merge_static(x, windows, static_counts, parameters), kept)


def _arranged(x: Float[Tensor, "T N C"], windows: Windows, static: Static, kept: Bool[Tensor, "T N"]) -> HoliTomTokens:
    """Put both kinds of tokens in order: a row with the static ones of each window, then one for each of its frames."""
    frames, patches, device = len(x), x.shape[1], x.device
    length, window = torch.tensor(windows.lengths, device=device), windows.of_frames
    begin, frame = length.cumsum(0) - length, torch.arange(frames, device=device)
    row_of_window, row_of_frame = begin + torch.arange(len(length), device=device), frame + window + 1
    present = torch.zeros(frames + len(length), patches, dtype=torch.bool, device=device)
    present[row_of_window], present[row_of_frame] = static.centre, kept
    first, still = frame.new_empty(len(present)), torch.zeros(len(present), dtype=torch.bool, device=device)
    first[row_of_window], first[row_of_frame] = begin * patches, frame * patches
    still[row_of_window] = True
    row, patch = present.nonzero().unbind(1)
    index, is_static = first[row] + patch, still[row]
    tokens = x.flatten(0, 1)[index]
    tokens[is_static] = static.tokens.to(x.dtype)

    number = present.flatten().cumsum(0).view_as(present) - 1
    here, at = kept.nonzero().unbind(1)
    alone = number[row_of_frame[here], at], here * patches + at, static.share.new_ones(len(here))
    here, at = (static.share[window] > 0).nonzero().unbind(1)
    own = window[here]
    token = number[row_of_window[own], static.target[own, at]]
    averaged = token, here * patches + at, static.share[own, at] / length[own]
    return HoliTomTokens(index, is_static, tokens, Sources(*map(torch.cat, zip(alone, averaged, strict=True))))


def merge_static(x: Float[Tensor, "T N C"], windows: Windows, counts: np.ndarray, of: HoliTomParameters) -> Static:
    """Average static positions over each window's frames, and merge them into as many centres as `counts` says."""
    patches, dtype, device = x.shape[1], working_dtype(x.dtype), x.device
    centre = torch.zeros_like(windows.static)
    target = torch.zeros(windows.static.shape, dtype=torch.long, device=device)
    share = torch.zeros(windows.static.shape, dtype=dtype, device=device)
    tokens = [x.new_zeros(0, x.shape[2], dtype=dtype)]
    count = torch.from_numpy(counts).to(device)
    for some, means in _window_means(x, windows.lengths, counts):
        static, most = windows.static[some], count[some]
        distance, score = density_peaks(means, most.clamp_max(of.neighbours), static)
        is_centre = ranks(score) < most[:, None]
        nearest = distance.masked_fill(~is_centre[:, None], torch.inf).argmin(-1)
        joins = nearest[:, None] == torch.arange(patches, device=device)[:, None]  # [g, centre, position]
        joins &= (static & ~is_centre)[:, None]
        taken = joins.sum(-1)
        own = torch.ones_like(taken, dtype=dtype).masked_fill(taken > 0, of.own_weight)
        weights = joins * ((1 - own) / taken.clamp_min(1))[..., None] + torch.diag_embed(own * is_centre)
        tokens.append((weights @ means)[is_centre])
        centre[some], target[some] = is_centre, torch.where(is_centre, torch.arange(patches, device=device), nearest)
        share[some] = weights.sum(1)
    return Static(centre, target, share, torch.cat(tokens))


def _window_means(
    x: Float[Tensor, "T N C"], lengths: tuple[int, ...], counts: np.ndarray
) -> Iterator[tuple[Int[Tensor, "g"], Float[Tensor, "g N C"]]]:
    """Yield the windows that have static tokens left, with the means of their frames, in parts that fit in memory."""
    (_, patches, channels), dtype = x.shape, working_dtype(x.dtype)
    length = torch.tensor(lengths)
    ends = length.cumsum(0)
    for some in torch.arange(len(lengths)).split(chunk_size(patches * max(patches, channels))):
        used = torch.from_numpy(counts)[some] > 0
        if not used.any():
            continue
        part = x[int(ends[some[0]] - length[some[0]]) : int(ends[some[-1]])]
        own = length[some].to(x.device)
        means = [
            torch.segment_reduce(few.flatten(1).to(dtype), "mean", lengths=own, axis=0, unsafe=True)
            for few in part.split(chunk_size(len(part) * patches), dim=2)
        ]
        used = used.to(x.device)
        yield some.to(x.device)[used], torch.cat([few.unflatten(1, (patches, -1)) for few in means], 2)[used]


def with_newlines_of_rows(
    made: HoliTomTokens, columns: int, newline: Float[Tensor, "C"]
) -> tuple[Int[Tensor, "m"], Float[Tensor, "m C"]]:
    """Return places and tokens in LLaVA-Video's sequence, where a newline follows every row that has tokens.

    Static tokens stand among the others of their window's first frame.
    """
    newlines = newlines_of_used_rows(made.index, columns)
    return insert_newlines(made.index, made.tokens, newlines, columns, newline)


class HoliTom(ParameterizedMethod[HoliTomParameters | None]):
    """HoliTom before the decoder (NeurIPS 2025, arXiv 2505.21334), the "HoliTom (w/o M)" of its tables.

    The video is divided into windows so that averaging positions that stay the same throughout a window removes most
    tokens. Static tokens are then merged into density peaks, and of each frame's other tokens those stay that the
    encoder attends to most. The full method, with the inner merge in the decoder, is `holitom-full`. The code is
    followed, without random noise on densities: the paper also clusters dynamic tokens, but the code's branch for that
    fails and the published scripts leave it out.

    Retention in the paper, "before LLM retained ratio", is R, from which follows the share R' = R T N / (T N - G) of
    the tokens that are left once averaging has removed G of them, at most 1. The counts are rounded up in every frame,
    so that more than R T N tokens stay, or fewer where R' would exceed 1. Here R' is the largest one whose count is
    within the budget, and the threshold that of the published scripts: 0.65 below 12.5%, 0.8 from there on. A video
    that is mostly static may give fewer tokens than the budget allows. Below the smallest count, one for each frame
    that has dynamic tokens, the most attended tokens of the frames stay, one each, in as many frames as allowed.

    Published sequences begin each window with its static tokens (LLaVA-OneVision), or put these into its first frame
    (LLaVA-Video). Here a static token stands at the mean time and place of what it was made of.
    """

    name = "holitom"
    title = "HoliTom"
    needs = frozenset({"attention"})
    replayable = False  # windows depend on the video

    def __init__(self, parameters: HoliTomParameters | None = None) -> None:
        super().__init__(parameters)

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Divide the video into windows, then choose the share by the limit."""
        x, attention = video.features, video.extras["attention"].to(video.features.device)
        low = limit < LOW * video.frames * video.patches
        of = self.parameters or (LOW_RETENTION if low else PUBLISHED)
        windows = divide(x, of.threshold, of.longest)
        ratio = largest_within(windows.total, limit, 0.0, 1.0)
        if not windows.total(ratio):
            return Compressed.kept(video, most_attended_of_frames(attention, limit))
        made = holitom(x, attention, windows, ratio, of)
        return merged(video, made.sources, made.tokens)
