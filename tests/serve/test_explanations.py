"""Explanations of answers: after the turns before them, beside other answers, and for as long as somebody waits."""

import json
import threading
import time

from asking import asked, data_url, eventually, turn

from aviot.explain.page import readable
from aviot.serve import explanations
from aviot.serve.videos import Abandoned

EARLIER = "What colour is it?"


def answered(server, clip, text, history=(), **options):
    """Return the reply to a question after earlier turns."""
    texts = [each for pair in history for each in pair] + [text]
    messages = [turn(clip, texts[0])]
    messages += [{"role": ("user", "assistant")[n % 2], "content": each} for n, each in enumerate(texts) if n]
    status, reply = server.post(asked(clip) | {"messages": messages, "aviot": {"budget": 3} | options})
    assert status == 200, reply
    return reply


def explained(server, reply, *also, name=""):
    query = "&".join([*(f"also={other['id']}" for other in also), f"name={name}"])
    status, _, body = server.request("GET", f"{reply['aviot']['explain']}/data?{query}")
    return status, json.loads(body)


def texts(report, kind="matched"):
    """Return the answers of a report by their questions."""
    return {
        report["questions"][each["question"]]: each["answer"] for each in report["conditions"] if each["kind"] == kind
    }


def test_an_answer_is_explained_after_the_turns_before_it(server, clip):
    alone = answered(server, clip, "And then?")
    history = ((EARLIER, "blue" * 20),)
    later = answered(server, clip, "And then?", history)
    assert alone["usage"]["prompt_tokens"] < later["usage"]["prompt_tokens"]
    said = [reply["choices"][0]["message"]["content"] for reply in (alone, later)]
    assert said[0] != said[1], "choose a history that changes the answer"
    for reply, text in zip((alone, later), said, strict=True):
        status, report = explained(server, reply)
        assert status == 200
        assert texts(report) == {"And then?": readable(text)}


def test_answers_about_one_video_are_compared(server, clip):
    first = answered(server, clip, "What is it?")
    second = answered(server, clip, "Why?", (("What is it?", "a square"),))
    other = answered(server, clip, "Why?", method="uniform", budget=2)
    status, report = explained(server, second, first, other, name="a%20clip%00")
    assert status == 200
    assert report["name"] == "a clip\N{REPLACEMENT CHARACTER}"
    assert report["questions"] == ["Why?", "What is it?"]
    found = texts(report)
    assert found["Why?"] == readable(second["choices"][0]["message"]["content"])
    assert found["What is it?"] == readable(first["choices"][0]["message"]["content"])
    assert {(each["method"], each["question"]) for each in report["alternatives"]} == {("uniform", 0), ("uniform", 1)}
    assert explained(server, second, first, other, name="a%20clip%00")[1] == report


def test_comparisons_that_are_refused(server, clip, folder):
    reply = answered(server, clip, "What is it?")
    elsewhere = answered(server, data_url(folder / "1.mp4"), "What is it?")
    status, said = explained(server, reply, elsewhere)
    assert (status, "about different videos" in said["error"]["message"]) == (422, True)
    status, said = explained(server, reply, {"id": "chatcmpl-none"})
    assert (status, "no such answer" in said["error"]["message"]) == (404, True)
    assert explained(server, reply, *[reply] * 5)[0] == 400


def test_an_explanation_that_nobody_waits_for_ends(server, clip, monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def endless(session, pictures, asking):
        begun.set()
        try:
            while True:
                session.report("compress")
                time.sleep(0.02)
        except Abandoned:
            ended.set()
            raise

    reply = answered(server, clip, "Where?")
    monkeypatch.setattr(explanations, "build_report", endless)
    with server.connect() as connection:
        head = f"GET {reply['aviot']['explain']}/data HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n"
        connection.sendall(head.encode())
        assert begun.wait(10)
        assert not ended.wait(0.2)
    assert ended.wait(5)
    assert eventually(lambda: not server.service.answerer.decoder.waiting)
