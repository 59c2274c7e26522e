"""Means over masked values, and the runs of set flags in a row of tokens."""

from collections.abc import Iterator, Sequence

from jaxtyping import Bool, Float
from torch import Tensor

from aviot.backbones.llava_video.prompt_batch import IGNORED


def mean_where(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where the mask is set, zero if it is nowhere; without a host synchronisation."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def question_means(embeds: Float[Tensor, "B L d"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B d"]:
    """Return the mean embedding of each row's question tokens."""
    weights = mask[..., None].to(embeds.dtype)
    return (embeds * weights).sum(1) / weights.sum(1).clamp_min(1)


def answer_spans(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield start and end of every answer: a run of supervised labels."""
    return true_runs([label != IGNORED for label in labels])


def true_runs(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of every run of set flags."""
    start = None
    for position, flag in enumerate((*flags, False)):
        if flag and start is None:
            start = position
        elif not flag and start is not None:
            yield start, position
            start = None
