"""Segments of a video, cut where neighbouring frames are least alike."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor


def cut_segments(similarity: Float[Tensor, "T-1"], least: int, threshold: float) -> tuple[int, ...]:
    """Return the lengths of segments, cut after the frames that are least similar to the next one.

    There are cuts at the `least - 1` smallest similarities, ties going to the earlier frame, and at all those below
    the threshold. A video of fewer than `least` frames is cut after every frame.
    """
    cut = similarity < threshold
    smallest = similarity.argsort(stable=True)[: max(least - 1, 0)]
    cut = cut.index_fill(0, smallest, True)
    last = torch.nonzero(cut)[:, 0].tolist()
    return tuple(end - start for start, end in pairwise([-1, *last, len(similarity)]))
