"""Requests of lmms-eval as items, without lmms-eval."""

import pytest

from aviot.evaluation.lmms.requests import MAX_NEW_TOKENS, Decoding, read_decoding, read_request

RECORD = {"question": "What?"}


def turn(*parts, role="user"):
    return {"role": role, "content": list(parts)}


def text_part(text):
    return {"type": "text", "text": text}


VIDEO = {"type": "video", "url": "/v/x.mp4"}


def test_a_request_is_one_video_and_its_text():
    item = read_request([turn(VIDEO, text_part("Look.\nWhat?\nBe brief."))], RECORD, "task 3")
    assert (item.id, item.video, item.prompt.text) == ("task 3", "/v/x.mp4", "Look.\nWhat?\nBe brief.")
    assert item.prompt.text[slice(*item.prompt.span)] == "What?"


@pytest.mark.parametrize(("kind", "name"), [("audio", "x.webm"), ("audio", "X.WEBM"), ("image", "x.gif")])
def test_videos_that_the_harness_takes_for_something_else(kind, name):
    assert read_request([turn({"type": kind, "url": name}, text_part("What?"))], RECORD, "1").video == name


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([turn(text_part("What?"))], "expected the path of one video, got nothing"),
        ([turn(VIDEO, VIDEO, text_part("What?"))], "one video, got ['video', 'video']"),
        ([turn({"type": "image", "url": "x.png"}, text_part("What?"))], "one video, got ['image']"),
        ([turn({"type": "video", "url": {"video_start": 1}}, text_part("What?"))], "the path of one video"),
        ([turn(text_part("Be."), role="system"), turn(VIDEO, text_part("What?"))], "expected one user turn"),
        ([], "expected one user turn"),
    ],
)
def test_other_chats_are_refused(messages, sentence):
    with pytest.raises(ValueError, match="task 1: ") as error:
        read_request(messages, RECORD, "task 1")
    assert sentence in str(error.value)


def test_decoding_is_the_tasks():
    generation = {"max_new_tokens": 16, "temperature": 0.0, "do_sample": False, "num_beams": 1, "top_p": 1.0}
    assert read_decoding(generation | {"until": ["\n\n"]}) == Decoding(16, ())
    assert read_decoding({"until": ["ASSISTANT:", ""]}) == Decoding(MAX_NEW_TOKENS, ("ASSISTANT:",))
    assert read_decoding({"until": "###"}).cut(" yes ### no ") == "yes"
    assert read_decoding({"until": None}).cut(" yes\n\nno ") == "yes\n\nno"


@pytest.mark.parametrize("generation", [{"do_sample": True}, {"temperature": 0.7}, {"num_beams": 4}])
def test_what_is_not_greedy_is_refused(generation):
    with pytest.raises(ValueError, match="aviot decodes greedily"):
        read_decoding(generation)
