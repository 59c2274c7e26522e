import pytest

from aviot.grounding.spans import Span
from aviot.grounding.when import FrameEvidence, answer_spans, frame_edges, frame_weights, source_spans


def evidence(shares, relevance=None, supports=None, **changes):
    count = len(shares)
    total = sum(shares)
    fields = {
        "times": [float(place) for place in range(count)],
        "shares": [share / total for share in shares],
        "relevance": relevance or [0.5] * count,
        "duration": float(count),
        "supports": supports or count,
    }
    return FrameEvidence(**(fields | changes))


def test_frames_reach_halfway_to_their_neighbours():
    assert frame_edges([0.0, 1.0, 3.0], 5.0) == [0.0, 0.5, 2.0, 5.0]
    assert frame_edges([0.0], 2.0) == [0.0, 2.0]


def test_without_evidence_it_is_the_whole_video():
    assert source_spans(evidence([1] * 8)) == (Span(0.0, 8.0),)


def test_the_frames_that_hold_more_than_their_share_are_the_span():
    assert source_spans(evidence([1, 1, 4, 4, 4, 1, 1, 1])) == (Span(1.5, 4.5),)


def test_relevance_chooses_among_evenly_kept_frames():
    assert source_spans(evidence([1] * 8, [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 0.3])) == (Span(5.5, 8.0),)


def test_the_fewest_runs_that_hold_most_of_the_excess_are_named():
    assert source_spans(evidence([1, 9, 1, 1, 3, 1, 1, 1])) == (Span(0.5, 1.5),)
    assert source_spans(evidence([1, 5, 1, 1, 5, 1, 1, 1])) == (Span(0.5, 1.5),)
    assert source_spans(evidence([1, 5, 1, 1, 5, 1, 5, 1])) == (Span(0.5, 1.5), Span(3.5, 4.5))


def test_what_supports_do_not_tell_apart_is_averaged():
    kept = evidence([1, 0, 1, 0, 1, 0, 1, 0], supports=4)
    assert frame_weights(kept)[1:-1] == pytest.approx([1 / 8] * 6, rel=0.2)
    assert frame_weights(kept).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_short_videos_have_spans(count):
    for supports in (1, 2, 7):
        (span,) = source_spans(evidence([1] * count, supports=supports))
        assert span == (0.0, count)


def test_words_come_before_provenance():
    seen = evidence([1, 1, 4, 4, 4, 1, 1, 1])
    assert answer_spans("He jumps from 2 s to 6 s.", seen) == ((Span(2.0, 6.0),), "words")
    assert answer_spans("A red ball.", seen) == ((Span(1.5, 4.5),), "provenance")
    assert answer_spans("from 20 s to 30 s", seen)[1] == "provenance"


@pytest.mark.parametrize("text", ["7", "2 to 3", "3-1", "[1, 2]", "Two or three."])
def test_numbers_that_may_be_counts_are_not_times(text):
    assert answer_spans(text, evidence([1] * 8))[1] == "provenance"


def test_each_frame_needs_a_share_and_a_relevance():
    with pytest.raises(ValueError, match="expected a share and a relevance for each of 3 frames, got 3 and 2"):
        source_spans(evidence([1, 1, 1], [0.1, 0.2]))
