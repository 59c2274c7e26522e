import random

import pytest

from aviot.evaluation.grounding.overlap import overlap
from aviot.grounding.spans import Span, bounded, covered, temporal_iou, union

MILLISECONDS = 1000


def cells(spans):
    """Every millisecond that some span covers, one by one."""
    return {cell for start, end in spans for cell in range(round(start * MILLISECONDS), round(end * MILLISECONDS))}


def naive_iou(left, right):
    """Count cells: nothing is shared with `spans`."""
    whole = cells(left) | cells(right)
    return len(cells(left) & cells(right)) / len(whole) if whole else 0.0


def drawn(generator, most):
    spans = []
    for _ in range(generator.randrange(most + 1)):
        start, end = sorted(generator.randrange(12_000) / MILLISECONDS for _ in range(2))
        spans.append((start, end))
    return spans


def test_the_overlap_of_unions_is_that_of_counted_milliseconds():
    generator = random.Random(1)
    for _ in range(120):
        left, right = drawn(generator, 5), drawn(generator, 5)
        assert temporal_iou(left, right) == pytest.approx(naive_iou(left, right), abs=1e-12)
        assert covered(left) == pytest.approx(len(cells(left)) / MILLISECONDS, abs=1e-9)


@pytest.mark.parametrize(
    ("left", "right", "iou"),
    [
        ([(0, 10)], [(0, 10)], 1.0),
        ([(0, 10)], [(5, 15)], 1 / 3),
        ([(0, 10)], [(10, 20)], 0.0),
        ([(0, 4), (3, 8)], [(0, 8)], 1.0),
        ([(0, 2), (6, 8)], [(0, 8)], 0.5),
        ([(3, 3)], [(0, 8)], 0.0),
        ([(3, 3)], [(3, 3)], 0.0),
        ([], [(0, 8)], 0.0),
        ([], [], 0.0),
    ],
)
def test_overlaps_by_hand(left, right, iou):
    assert temporal_iou(left, right) == pytest.approx(iou)
    assert temporal_iou(right, left) == pytest.approx(iou)


def test_a_union_is_disjoint_and_in_order():
    assert union([(5, 7), (1, 2), (2, 3), (6, 9), (20, 20)]) == (Span(1, 3), Span(5, 9), Span(20, 20))


@pytest.mark.parametrize(
    ("start", "end", "duration", "span"),
    [
        (9, 3, 10, (3, 9)),
        (3, 30, 10, (3, 10)),
        (-3, 4, 10, (0, 4)),
        (12, 30, 10, None),
        (-3, -1, 10, None),
        (3, float("inf"), 10, None),
        (float("nan"), 4, None, None),
    ],
)
def test_spans_are_bounded_by_the_video(start, end, duration, span):
    assert bounded(start, end, duration) == span


def test_the_first_span_is_scored_against_the_best_annotated_one():
    found = overlap("from 10 s to 14 s, and from 0 s to 2 s", [Span(0, 2), Span(12, 16)], 20.0)
    assert found.spans == (Span(10, 14), Span(0, 2))
    assert found.iou == pytest.approx(1 / 3)
    assert not found.is_correct
    assert found.union_iou == pytest.approx((2 + 2) / (2 + 6))


@pytest.mark.parametrize("reply", ["It does not happen.", "at 3 s", ""])
def test_what_names_no_span_overlaps_by_nothing(reply):
    assert (overlap(reply, [Span(0, 8)], 10.0).iou, overlap(reply, [Span(0, 8)], 10.0).union_iou) == (0.0, 0.0)
