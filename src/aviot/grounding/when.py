"""The spans of time that an answer rests on: in the model's own words, or by where its visual tokens come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aviot.grounding.spans import Span, union
from aviot.grounding.times import read_spans

TimesFrom = Literal["words", "provenance"]
MOST = 0.5
"""The runs of frames that are named hold at least this share of the weight above an even spread."""
EVEN = 1e-6
"""Relative differences below this are rounding."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FrameEvidence:
    """Facts about a video's T frames: their times in seconds, each one's share of the visual tokens (they sum to
    one), its relevance to the question (a cosine), the video's duration, and the number of distinct times of tokens.
    """

    times: Sequence[float]
    shares: Sequence[float]
    relevance: Sequence[float]
    duration: float
    supports: int


def answer_spans(text: str, evidence: FrameEvidence) -> tuple[tuple[Span, ...], TimesFrom]:
    """Return the spans that an answer names, else those that its tokens come from, and which of the two they are."""
    named = read_spans(text, evidence.duration, bare=False)
    return (named, "words") if named else (source_spans(evidence), "provenance")


def source_spans(evidence: FrameEvidence) -> tuple[Span, ...]:
    """Return the fewest runs of frames that hold most of the weight above an even spread; if it is even, the video.

    A frame's weight w_i is its share of the tokens times its relevance, scaled to [0, 1] over the video, and averaged
    over the T / supports frames around it, which tokens do not tell apart. With sum w_i = 1 a frame's excess is
    max(0, w_i - 1/T), and a run is a sequence of frames with excess.
    """
    weights = frame_weights(evidence)
    count = len(weights)
    excess = np.where(weights * count > 1 + EVEN, weights - 1 / count, 0.0)
    if not excess.any():
        return (Span(0.0, evidence.duration),)
    ends = np.flatnonzero(np.diff(np.concatenate(([0], excess > 0, [0])).astype(int)))
    runs = sorted(zip(ends[::2], ends[1::2], strict=True), key=lambda run: -excess[run[0] : run[1]].sum())
    held = np.cumsum([excess[first:last].sum() for first, last in runs])
    needed = int(np.searchsorted(held, MOST * excess.sum() * (1 - EVEN))) + 1
    edges = frame_edges(evidence.times, evidence.duration)
    return union((edges[first], edges[last]) for first, last in runs[:needed])


def frame_weights(evidence: FrameEvidence) -> Floats:
    """Return w_i, the weight of each frame in an answer, [T]; they sum to one."""
    shares = np.asarray(evidence.shares, dtype=np.float64)
    relevance = np.asarray(evidence.relevance, dtype=np.float64)
    if not len(shares) == len(relevance) == len(evidence.times):
        raise ValueError(
            f"expected a share and a relevance for each of {len(evidence.times)} frames, got {len(shares)} and "
            f"{len(relevance)}"
        )
    low, high = relevance.min(), relevance.max()
    scaled = (relevance - low) / (high - low) if high - low > EVEN else np.ones_like(relevance)
    weights = shares * scaled
    weights = weights if weights.sum() > 0 else shares
    width = max(1, -(-len(weights) // max(1, evidence.supports)))
    box = np.ones(width)
    smooth = np.convolve(weights, box, "same") / np.convolve(np.ones_like(weights), box, "same")
    smooth = smooth[: len(weights)]
    return np.asarray(smooth / smooth.sum())


def frame_edges(times: Sequence[float], duration: float) -> list[float]:
    """Return the T + 1 ends of the frames' spans: halfway between their times, from 0 to the duration."""
    between = [(left + right) / 2 for left, right in pairwise(times)]
    return [0.0, *between, max(duration, times[-1])]
