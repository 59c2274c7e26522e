"""Similarity of frames in time, and segments of a video that are cut where it is low."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.peers.chunks import chunk_size

NORM_FLOOR = 1e-8
"""Smallest norm that a cosine divides by; the cosine with a zero vector is 0."""


def cosine(a: Float[Tensor, "*B D"], b: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
    """Return the cosine of vectors along the last axis, in float32 or better; 0 for zero vectors."""
    dtype = working_dtype(a.dtype)
    a, b = a.to(dtype), b.to(dtype)
    norms = a.norm(dim=-1).clamp_min(NORM_FLOOR) * b.norm(dim=-1).clamp_min(NORM_FLOOR)
    return (a * b).sum(-1) / norms


def frame_cosines(x: Float[Tensor, "T S D"], first: Int[Tensor, "n"], second: Int[Tensor, "n"]) -> Float[Tensor, "n S"]:
    """Return the cosine at each position of pairs of frames, given as two lists of frame numbers."""
    chunk = chunk_size(x.shape[1] * x.shape[2])
    parts = [cosine(x[i], x[j]) for i, j in zip(first.split(chunk), second.split(chunk), strict=True)]
    return torch.cat(parts)


def neighbour_cosines(vectors: Float[Tensor, "T D"]) -> Float[Tensor, "T-1"]:
    """Return the cosine of every frame's vector and the next one's."""
    return cosine(vectors[:-1], vectors[1:])


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
