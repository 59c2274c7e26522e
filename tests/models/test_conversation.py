"""Conversations for training: the same prompts as for answering, with supervised answers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aviot.backbones.llava_video.configuration import VIDEO_PLACEHOLDER
from aviot.backbones.llava_video.prompt import chat_prompt
from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.models import AviotProcessor

PROCESSOR = AviotProcessor.from_pretrained(Path(__file__).parents[1] / "golden" / "checkpoint")
TIMES = (0.0, 0.5, 1.0)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).map(str.strip).filter(bool)
TURNS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3)


def decode(ids) -> str:
    return PROCESSOR.tokenizer.decode(ids)


def test_answers_alone_are_supervised():
    turns = [("Where?", "Here, in it."), ("Why?", "Because.")]
    found = PROCESSOR.encode_conversation(turns, 1.5, TIMES)
    assert found.ids.count(VIDEO_PLACEHOLDER) == 1
    assert decode([label for label in found.labels if label != IGNORED]) == "Here, in it.<|im_end|>Because.<|im_end|>"
    assert all(label in (token, IGNORED) for token, label in zip(found.ids, found.labels, strict=True))
    assert [decode(found.ids[first:end]) for first, end in found.questions] == ["Where?", "Why?"]


@given(TURNS)
def test_every_prompt_of_answering_is_a_beginning_of_it(turns):
    """Up to each question, a conversation for training has the tokens of the prompt for answering."""
    try:
        found = PROCESSOR.encode_conversation(turns, 1.5, TIMES)
    except ValueError:
        assert any("<|" in text for turn in turns for text in turn)
        return
    for number, (question, _) in enumerate(turns):
        prompt = PROCESSOR.encode_prompt(chat_prompt(question, 1.5, TIMES, turns[:number]))
        assert found.ids[: len(prompt.ids)] == prompt.ids
        assert found.labels[len(prompt.ids)] == found.ids[len(prompt.ids)]
        assert found.questions[number] == prompt.question


def test_instructions_are_no_question():
    turns = [("Where?\nAnswer with the option letter only.", "B"), ("Only answer yes or no. Is it?", "Yes")]
    found = PROCESSOR.encode_conversation(turns, 1.5, TIMES)
    assert [decode(found.ids[first:end]).strip() for first, end in found.questions] == ["Where?", "Is it?"]


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([], "at least one question"),
        ([("", "a")], "question 1 is empty"),
        ([("A?", " ")], "answer 1 is empty"),
        ([("A?", "a"), ("B<|im_start|>?", "b")], r"question 2 holds <\|im_start\|>"),
        ([("A?", "a<|endoftext|>")], r"answer 1 holds <\|endoftext\|>"),
    ],
)
def test_what_is_refused(turns, message):
    with pytest.raises(ValueError, match=message):
        PROCESSOR.encode_conversation(turns, 1.5, TIMES)
