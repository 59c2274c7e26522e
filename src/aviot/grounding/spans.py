"""Spans of time in seconds, their unions, and the overlap of two unions."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A closed interval of time in seconds; one of no length is a moment."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """Return the seconds between start and end."""
        return self.end - self.start


def bounded(start: float, end: float, duration: float | None) -> Span | None:
    """Return the ordered span within [0, duration]; None if it lies outside or is not finite."""
    if not (math.isfinite(start) and math.isfinite(end)):
        return None
    low, high = sorted((start, end))
    if high < 0 or (duration is not None and low > duration):
        return None
    return Span(max(low, 0.0), high if duration is None else min(high, duration))


def union(spans: Iterable[Sequence[float]]) -> tuple[Span, ...]:
    """Return disjoint spans in order of time that cover the same seconds; spans that touch are joined."""
    joined: list[Span] = []
    for start, end in sorted((float(one[0]), float(one[1])) for one in spans):
        if joined and start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, end))
        else:
            joined.append(Span(start, end))
    return tuple(joined)


def covered(spans: Iterable[Sequence[float]]) -> float:
    """Return the seconds that the union of spans covers."""
    return math.fsum(span.length for span in union(spans))


def temporal_iou(left: Iterable[Sequence[float]], right: Iterable[Sequence[float]]) -> float:
    """Return |A ∩ B| / |A ∪ B| in seconds of two unions of spans; 0 if neither has a length."""
    first, second = union(left), union(right)
    shared = math.fsum(
        max(0.0, min(one.end, other.end) - max(one.start, other.start)) for one, other in _overlapping(first, second)
    )
    whole = covered(first) + covered(second) - shared
    return shared / whole if whole > 0 else 0.0


def _overlapping(first: Sequence[Span], second: Sequence[Span]) -> Iterable[tuple[Span, Span]]:
    """Yield the pairs of two unions that may overlap, in time linear in their number."""
    i = j = 0
    while i < len(first) and j < len(second):
        yield first[i], second[j]
        if first[i].end <= second[j].end:
            i += 1
        else:
            j += 1
