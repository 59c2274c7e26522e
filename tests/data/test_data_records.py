"""Requirements of records, and the messages for those that break them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_sets import record, turns

from aviot.data.checks import RecordError
from aviot.data.record import parse_record


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("<image>\nWhat?", "What?"),
        ("What?\n<image>", "What?"),
        ("<video>\nWhat?", "What?"),
        ("Look at <image> and say what.", "Look at  and say what."),
        ("What?", "What?"),
    ],
)
def test_the_placeholder_may_stand_anywhere_in_the_first_question(question, asked):
    found = parse_record(record(conversations=turns(question, " It. ")), "1")
    assert found.turns == ((asked, "It."),)


def test_turns_pair_up():
    found = parse_record(record(conversations=turns("<image>\nA?", "a", "B?", "b", "C?", "c")), "1")
    assert found.turns == (("A?", "a"), ("B?", "b"), ("C?", "c"))
    assert found.characters == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"video": None}, "text-only record"),
        ({"video": None, "image": "a.png"}, "image record"),
        ({"video": ["a.mp4"]}, "path of one video as text, got list"),
        ({"video": " "}, "1 to 4096 characters"),
        ({"video": "a" * 5000}, "got 5000"),
        ({"video": "/etc/passwd"}, "absolute"),
        ({"video": "a/../../b.mp4"}, "below the video folder"),
        ({"video": "."}, "below the video folder"),
        ({"video": "a\0.mp4"}, "control characters"),
        ({"video": "a\n.mp4"}, "control characters"),
        ({"video": "http://host/a.mp4"}, "address"),
        ({"video": "a\ud800.mp4"}, "video holds half a character"),
        ({"conversations": None}, "no conversation"),
        ({"conversations": []}, "no conversation"),
        ({"conversations": "hello"}, "no conversation"),
        ({"conversations": ["hello"]}, "turn 1 must be a JSON object, got text"),
        ({"conversations": turns("<image>\n<image>\nA?", "a")}, "2 placeholders"),
        ({"conversations": turns("<image>\nA?", "a <video>")}, "2 placeholders"),
        ({"conversations": turns("A?", "a", "<image> B?", "b")}, "turn 3 has the placeholder"),
        ({"conversations": turns("A?", "a <image>")}, "turn 2 has the placeholder"),
        ({"conversations": turns("", "A?", "a")[1:]}, "begins with an answer"),
        ({"conversations": [{"from": "system", "value": "x"}]}, "turn 1 must be from \"human\".*got 'system'"),
        ({"conversations": turns("A?", "a") + turns("A?", "a")[1:]}, 'turn 3 must be from "human"'),
        ({"conversations": turns("A?")}, "turn 1 is a question without an answer"),
        ({"conversations": turns("A?", "a", "B?")}, "turn 3 is a question without an answer"),
        ({"conversations": turns("A?", " \n")}, "turn 2, an answer, is empty"),
        ({"conversations": turns("<image>\n", "a")}, "turn 1, a question, is empty"),
        ({"conversations": turns("A?", "a\ud800")}, "turn 2 holds half a character"),
        ({"conversations": [{"from": "human"}, {"from": "gpt", "value": "a"}]}, "turn 1 must have text"),
        ({"conversations": [{"from": ["human"], "value": "a"}]}, "got list"),
        ({"id": 1.5}, "id must be text"),
        ({"data_source": 3}, "data_source must be text"),
        ({"duration": float("nan")}, "duration must be"),
        ({"duration": -1}, "duration must be"),
        ({"duration": "long"}, "duration must be"),
    ],
)
def test_invalid_records_are_refused(changes, message):
    with pytest.raises(RecordError, match=message):
        parse_record(record(**changes), "1")


@pytest.mark.parametrize(("value", "name"), [([], "an array"), ("x", "text"), (None, "null"), (3, "a number")])
def test_a_record_is_an_object(value, name):
    with pytest.raises(RecordError, match=f"a record must be a JSON object, got {name}"):
        parse_record(value, "1")


def test_optional_keys():
    found = parse_record(record(id=None, data_source=None, extra={"deep": [1]}), "17")
    assert (found.id, found.data_source, found.seconds) == ("17", "", None)
    assert parse_record(record(id=12), "1").id == "12"


@pytest.mark.parametrize(
    ("source", "seconds"),
    [("0_30_s_academic_v0_1", 15), ("30_60_s_youtube_v0_1", 45), ("2_3_m_academic_v0_1", 150), ("activitynet", None)],
)
def test_durations_follow_the_published_names(source, seconds):
    assert parse_record(record(data_source=source), "1").seconds == seconds
    assert parse_record(record(data_source=source, duration=7), "1").seconds == 7


KEYS = (
    *("id", "video", "videos", "conversations", "messages", "from", "value", "role", "content", "type"),
    *("text", "system", "query", "response", "history", "data_source", "duration"),
)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner,
            )
        ),
        max_leaves=25,
    )
)
def test_anything_is_a_record_or_refused(value):
    try:
        found = parse_record(value, "1")
    except RecordError:
        return
    assert found.turns
