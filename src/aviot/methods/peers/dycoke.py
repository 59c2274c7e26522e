"""DyCoke's temporal merging: in groups of four frames, later frames keep what changed."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import Compressed
from aviot.methods.features import VideoFeatures
from aviot.methods.peers.budgeted import BudgetedMethod
from aviot.methods.peers.segments import frame_cosines

MERGED = 0.7
GROUP = 4
LEAST_FRAMES = 5
"""Fewer frames make the original fail."""


def tokens_per_reduced_frame(patches: int, merged: float = MERGED) -> int:
    """Return how many tokens a reduced frame keeps, from the share that is merged away; truncated."""
    return int((1 - merged) * patches)


def reduced_and_whole(frames: int) -> tuple[dict[int, int], list[int]]:
    """Return reduced frames with the frame that each is compared with, and the frames that stay whole.

    Every second frame is compared with the one before it, every third of a group of four with the group's first,
    except in the last group. A last frame without a partner is left out, unless the video has fewer than five frames,
    which the original does not take.
    """
    paired = frames - frames % 2
    reduced = {frame: frame - 1 for frame in range(1, paired, 2)}
    reduced |= {first + 2: first for first in range(0, frames - GROUP, GROUP)}
    last = frames if frames < LEAST_FRAMES else paired
    return reduced, [frame for frame in range(last) if frame not in reduced]


def dycoke(x: Float[Tensor, "T N C"], count: int) -> Int[Tensor, "n"]:
    """Return flat indices in the order of the output: frame by frame, whole frames row by row.

    Reduced frames hold the `count` tokens that differ most from the frame that they are compared with, most different
    first, even if that is all of them.
    """
    frames, patches, device = len(x), x.shape[1], x.device
    reduced, whole = reduced_and_whole(frames)
    places = torch.arange(patches, device=device)
    kept = torch.tensor(whole, device=device)
    index, frame = [kept[:, None] * patches + places], [kept[:, None].expand(-1, patches)]
    if reduced:
        own, other = (torch.tensor(list(part), device=device) for part in (reduced.keys(), reduced.values()))
        changed = frame_cosines(x, own, other).argsort(dim=1, stable=True)[:, :count]
        index.append(own[:, None] * patches + changed)
        frame.append(own[:, None].expand_as(changed))
    order = torch.cat([part.flatten() for part in frame]).argsort(stable=True)
    return torch.cat([part.flatten() for part in index])[order]


class DyCoke(BudgetedMethod):
    """DyCoke, stage 1: temporal token merging (CVPR 2025, 2411.15024).

    Despite its name a selection: of every group of four frames the first stays whole, and the others keep the tokens
    whose cosine to the same place of an earlier frame is lowest, in the order of that cosine. As in the original, the
    third frame of the last group stays whole, and with an odd number of frames the last one is discarded; videos of
    fewer than five frames, which make the original fail, keep it.

    The paper's "retained ratio" multiplies (1/4 + 3/4 (1 - K)), with K the share merged away of a reduced frame, by
    what its second stage attends to while it decodes; that stage is not part of this method, so the decoder's prefill
    holds the first factor. Here K is the smallest one within the budget. Whole frames are about a quarter of the
    tokens or more, and a budget below them is refused.
    """

    name = "dycoke"
    title = "DyCoke"
    replayable = False  # frame numbers are copied from the CPU

    def reduce(self, video: VideoFeatures, question: Tensor | None, limit: int) -> Compressed:
        """Give every reduced frame the same number of tokens, the largest within the limit."""
        reduced, whole = reduced_and_whole(video.frames)
        least = len(whole) * video.patches
        self.refuse_below(least, video, limit, "the first of every four frames, and the last group's third, stay whole")
        count = min(video.patches, (limit - least) // len(reduced)) if reduced else 0
        return Compressed.kept(video, dycoke(video.features, count))
