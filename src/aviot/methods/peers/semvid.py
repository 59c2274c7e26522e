"""SemVID: tokens of context, of the question's objects and of motion, more of them in relevant frames."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import ParameterizedMethod
from aviot.methods.peers.semvid_allocation import SemVidParameters, allocate, frame_signals, unit
from aviot.methods.peers.semvid_selection import UNUSED, select

GROUNDING = SemVidParameters()
"""The authors' parameters for temporal grounding with Qwen3-VL."""


@dataclass(frozen=True, eq=False)
class SemVidResult:
    """The tokens that stay, in ascending order: `keep` has their flat indices, `kind` 0 context, 1 object, 2 motion.

    `frame_keep` is the number of tokens of each frame.
    """

    frame_keep: Int[Tensor, "T"]
    keep: Int[Tensor, "n"]
    kind: Int[Tensor, "n"]


def question_rows(
    table: Float[Tensor, "V D"],
    ids: Int[Tensor, "L"],
    special: Collection[int],
    mask: Bool[Tensor, "L"] | None = None,
) -> Float[Tensor, "l D"]:
    """Return the input embeddings of a question's tokens without special and padded ones; all if none is left."""
    own = ~torch.isin(ids, torch.tensor(sorted(special), dtype=ids.dtype, device=ids.device))
    if mask is not None:
        own &= mask.bool()
    return table[ids[own] if bool(own.any()) else ids]


def query_vectors(rows: Float[Tensor, "L D"], most: int) -> Float[Tensor, "*L D"]:
    """Return a question's embeddings with unit length; one vector, their mean's, if there are more than `most`."""
    return unit(rows if len(rows) <= most else rows.float().mean(0))


def semvid(
    features: Float[Tensor, "T P D"],
    query: Float[Tensor, "*L D"],
    grid: tuple[int, int],
    parameters: SemVidParameters = GROUNDING,
) -> SemVidResult:
    """Select a video's tokens for a query of `query_vectors`."""
    means = torch.stack([frame.float().mean(0) for frame in features])
    frame_keep = allocate(frame_signals(unit(means), query, parameters), features.shape[1], parameters)
    kind = select(features, query, frame_keep, parameters, grid).flatten()
    keep = (kind != UNUSED).nonzero()[:, 0]
    return SemVidResult(frame_keep, keep, kind[keep])


class SemVid(ParameterizedMethod[SemVidParameters]):
    """SemVID (ECCV 2026, arXiv 2603.05663): selection for a question, meant for finding moments in time.

    Each frame gets a number of tokens by its similarity to the words of the question and by its motion, and keeps the
    token nearest its mean, tokens that are relevant to single words and unlike each other, and tokens that move. Tokens
    stay unchanged. "Retention" in the paper is the share of all visual tokens that enters the decoder (12.5% in its
    main table). The authors' Qwen3-VL program drops DeepStack features; what a backbone here does with them is its own
    business, so that its figures are not comparable with theirs.

    The parameters are those of the authors' Qwen3-VL program for grounding; `SemVidParameters` has the others', and
    `AnchorParameters` what their Qwen2.5-VL program adds. The query is the question's own tokens, without the prompt
    around them (the authors also lower-case the text and drop a final full stop; that is the backbone's business).

    Without a question the original reads the whole prompt instead, which a method does not get. Here every relevance is
    then zero: segments share alike, frames inside a segment by motion, and objects are merely unlike each other.

    The budget gives the retention exactly. At least one token per frame must stay, otherwise ValueError.
    """

    name = "semvid"
    title = "SemVID"
    uses_question = True
    needs = frozenset({"question_tokens"})
    replayable = False  # frames share out the tokens on the host

    def __init__(self, parameters: SemVidParameters = GROUNDING) -> None:
        super().__init__(parameters)

    def reduce(self, video: VideoFeatures, question: Float[Tensor, "d"] | None, limit: int) -> Compressed:
        """Select as many tokens as the limit allows."""
        frames, base = video.frames, self.parameters.base(video.patches)
        self.refuse_below(frames * base, video, limit, f"every frame keeps {base}")
        own = replace(self.parameters, retention=limit / (frames * video.patches))
        return Compressed.kept(video, semvid(video.features, self._query(video, question), video.grid, own).keep)

    def _query(self, video: VideoFeatures, question: Tensor | None) -> Float[Tensor, "*L D"]:
        width, device = video.features.shape[-1], video.features.device
        if question is None:
            return torch.zeros(width, device=device)
        rows = video.extras["question_tokens"].to(device)
        if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
            raise ValueError(
                f"method {self.name!r} compares the question's tokens [L,{width}] with the video's, at least one; got "
                f"{tuple(rows.shape)}; give embeddings of the decoder that reads the video's tokens"
            )
        return query_vectors(rows, self.parameters.query_tokens)
