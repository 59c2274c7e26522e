import random
import time

import pytest
from grounding_phrases import PHRASES

from aviot.grounding.times import read_spans

DURATION = 100.0


def test_there_are_at_least_200_phrasings_each_once():
    assert len({text for text, _ in PHRASES}) == len(PHRASES) >= 200


@pytest.mark.parametrize(("text", "spans"), PHRASES, ids=[text[:60] for text, _ in PHRASES])
def test_a_phrasing_is_read(text, spans):
    assert [tuple(span) for span in read_spans(text, DURATION)] == [pytest.approx(span) for span in spans]


HOSTILE = (
    "0:1 |1:|0:0:|1.|12 s |12 s to |from |between 1 and |one hundred and |twenty-|1 min |first |[|[1,|starts at 3 |, |"
    "ends |in the |last |the end |- |second |second 3 |%|half a |1'|25% of the video |2-|no |from the |½|9|a|"
    "frames 1 to "
)


@pytest.mark.parametrize("piece", HOSTILE.split("|"))
def test_a_hostile_text_is_read_in_linear_time(piece):
    def seconds(count: int) -> float:
        before = time.process_time()
        read_spans(f"from 3 s {piece * count} 9 s", DURATION)
        return time.process_time() - before

    short = min(seconds(100) for _ in range(2))
    long = min(seconds(3200) for _ in range(2))  # a collection of a large heap may fall into one of them
    assert long < 32 * 8 * max(short, 0.002)


def test_any_text_gives_ordered_spans_within_the_duration():
    drawn = random.Random(0)
    pieces = [piece for text, _ in PHRASES for piece in text.split()]
    for _ in range(1500):
        text = " ".join(drawn.choices(pieces, k=drawn.randrange(12)))
        for start, end in read_spans(text, DURATION):
            assert 0 <= start <= end <= DURATION, text
        assert all(span.end >= span.start >= 0 for span in read_spans(text))


def test_without_a_duration_what_needs_it_is_not_read():
    assert read_spans("from 95 s to the end") == ((95.0, 95.0),)
    assert read_spans("at 75% of the video") == read_spans("throughout the whole video") == ()
    assert read_spans("from 95 s to 120 s") == ((95.0, 120.0),)
