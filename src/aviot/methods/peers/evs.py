"""EVS: the first frame stays whole, and after it the tokens that differ most from the frame before."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.base import Compressed, grid_positions
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod
from aviot.methods.peers.deepstack import all_channels
from aviot.methods.peers.segments import frame_cosines

FIRST = 255.0
"""Dissimilarity of every token of the first frame, above any other."""


def evs_count(frames: int, patches: int, pruning_rate: float) -> int:
    """Return the number of tokens for a pruning rate: truncated, at least those of one frame."""
    return max(patches, int(frames * patches * (1 - pruning_rate)))


def dissimilarity(x: Float[Tensor, "T N C"]) -> Float[Tensor, "T N"]:
    """Return one minus the cosine of each token and the one at its place in the frame before, kept or not."""
    first = x.new_full((1, x.shape[1]), FIRST, dtype=working_dtype(x.dtype))
    if len(x) == 1:
        return first
    frames = torch.arange(len(x), device=x.device)
    return torch.cat((first, 1 - frame_cosines(x, frames[1:], frames[:-1])))


def evs(x: Float[Tensor, "T N C"], count: int) -> Int[Tensor, "count"]:
    """Return the flat indices of the `count` most dissimilar tokens, ascending; ties go to the lower index."""
    order = dissimilarity(x).flatten().argsort(descending=True, stable=True)
    return order[:count].sort().values


def rope_ids(
    index: Int[Tensor, "n"], grid: tuple[int, int], tokens_per_second: float, seconds_per_frame: float
) -> Int[Tensor, "n 3"]:
    """Return time, row and column of tokens as Qwen2.5-VL in vLLM counts them, from the start of the video.

    The seconds of a temporal patch are truncated to a whole number before they are multiplied.
    """
    patches = grid[0] * grid[1]
    row, column = grid_positions(grid, index % patches)
    time = (index // patches).double() * tokens_per_second * int(seconds_per_frame)
    return torch.stack((time.long(), row, column), 1)


class EVS(BudgetedMethod):
    """EVS: Efficient Video Sampling (NVIDIA 2025, 2510.14624), as shipped in vLLM 0.32.

    Keeps the first frame whole, and of all later tokens those with the lowest cosine to the token at the same place in
    the frame before. Ties go to the earlier token. Cosines are taken over tokens and deepstack features together,
    where a family has them.

    vLLM's pruning rate q is the share of all tokens removed; the number that stays is truncated, but at least one
    frame. Here the budget is that number, and a budget below one frame is refused. The paper is reported to select in
    pixels by a threshold; this follows the shipped code. vLLM takes cosines in the model's precision, this code in
    float32, so that there are fewer ties.
    """

    name = "evs"
    title = "EVS"

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Keep exactly as many tokens as the limit."""
        self.refuse_below(video.patches, video, limit, "the first frame stays whole")
        return Compressed.kept(video, evs(all_channels(video), limit))
