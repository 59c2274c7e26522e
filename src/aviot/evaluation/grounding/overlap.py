"""The score of the spans that a reply names against the annotated ones.

R@1 and mIoU are of the first span that a reply names and the annotated span that it overlaps best, as the benchmarks
define them. The IoU of the unions of all named and all annotated spans is reported beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aviot.grounding.spans import Span, temporal_iou
from aviot.grounding.times import read_spans

THRESHOLDS = (0.3, 0.5, 0.7)
CORRECT = 0.5
"""The overlap at which a row counts as correct; R@1 is reported at all of THRESHOLDS."""


@dataclass(frozen=True)
class Overlap:
    """The spans that a reply names, the IoU of the first, and the IoU of the union of all."""

    spans: tuple[Span, ...]
    iou: float
    union_iou: float

    @property
    def is_correct(self) -> bool:
        """Return whether the first span overlaps an annotated one by half."""
        return self.iou >= CORRECT


def overlap(reply: str, annotated: Sequence[Span], duration: float | None) -> Overlap:
    """Return how well a reply names the annotated spans of a video; a reply without times and a moment overlap by 0."""
    spans = read_spans(reply, duration)
    first = max((temporal_iou(spans[:1], [one]) for one in annotated), default=0.0)
    return Overlap(spans, first, temporal_iou(spans, annotated))
