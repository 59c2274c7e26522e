"""Answers of the server to the real client, the same as in this process."""

import json
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from asking import NAME, QUESTION, asked, frames_url, pictures, running, turn

from aviot import AutoBudget, Budget, VideoLM
from aviot.engine.transformers import TransformersEngine
from aviot.methods import registry
from aviot.methods.peers.fastv import FastV


@pytest.fixture(scope="module")
def alone(lm, folder):
    """Return a function that answers in this process, one question at a time."""
    backbone = lm.backbone
    own = VideoLM(backbone, engine=TransformersEngine(backbone.model, backbone.tokenizer))
    sessions = {}

    def answer(number=0, question=QUESTION, budget=None, history=(), **how):
        if number not in sessions:
            sessions[number] = own.open(folder / f"{number}.mp4")
        return sessions[number].ask(question, budget=budget, history=history, **{"max_new_tokens": 8} | how)

    return answer


def test_the_openai_client_gets_the_answer(server, clip, alone):
    expected = alone()
    reply = server.client().chat.completions.create(**asked(clip))
    assert reply.choices[0].message.content == expected.text
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage.visual_tokens == {"before": expected.tokens_before, "after": expected.tokens_after}
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.aviot["frames"] == expected.frames
    assert reply.model == NAME


def test_the_openai_client_streams(server, clip, alone):
    asking = asked(clip, stream=True, stream_options={"include_usage": True})
    chunks = list(server.client().chat.completions.create(**asking))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == alone().text
    assert chunks[-2].choices[0].finish_reason in ("stop", "length")
    assert chunks[-2].aviot["method"] == "aviot"
    assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens >= 1


def test_the_openai_client_with_tools_off(server, clip, alone):
    off = {"tools": [], "tool_choice": "none", "parallel_tool_calls": False}
    reply = server.client().chat.completions.create(**asked(clip), **off)
    assert reply.choices[0].message.content == alone().text
    assert not reply.choices[0].message.tool_calls


def test_budget_method_and_frames_of_a_request(server, clip, alone):
    create = server.client().chat.completions.create
    for method, budget, given in (("uniform", Budget(keep=0.5), {"keep": 0.5}), ("aviot", Budget(ratio=2), 2)):
        reply = create(**asked(clip), extra_body={"aviot": {"method": method, "budget": given}})
        expected = alone(budget=budget, method=method)
        assert reply.choices[0].message.content == expected.text
        assert reply.usage.visual_tokens["after"] == expected.tokens_after
        assert reply.aviot["budget"] == str(budget)
    for named in ({"aviot": {"frames": 3}}, {"media_io_kwargs": {"video": {"num_frames": 3}}}):
        assert create(**asked(clip), extra_body=named).aviot["frames"] == 3


def test_a_method_inside_the_decoder(server, clip, alone, monkeypatch):
    class Early(FastV):
        name = "early"

        def __init__(self):
            super().__init__(layer=1)

    monkeypatch.setitem(registry._registered, "early", Early)
    expected = alone(method="early", budget=2)
    status, reply = server.post(asked(clip, aviot={"method": "early", "budget": 2, "provenance": True}))
    assert status == 200
    assert reply["choices"][0]["message"]["content"] == expected.text
    assert reply["usage"]["visual_tokens"]["after"] == expected.tokens_after
    assert reply["aviot"]["provenance"]["moments"]


def test_earlier_turns_are_history(server, clip, alone):
    messages = [turn(clip, "What is it?"), {"role": "assistant", "content": "A block."}, turn(None, "Why?")]
    reply = server.client().chat.completions.create(model=NAME, messages=messages, max_tokens=8)
    assert reply.choices[0].message.content == alone(question="Why?", history=[("What is it?", "A block.")]).text


def test_frames_that_were_sampled_already(server):
    status, reply = server.post(asked(frames_url(5), aviot={"fps": 2}))
    assert status == 200
    assert reply["aviot"]["frames"] == 5


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_pictures_that_follow_each_other_are_the_frames_of_a_video(server, kind):
    """Clients without videos, such as the openai client's examples and lmms-eval, send sampled frames as images."""
    text = {"type": "text", "text": QUESTION}
    _, expected = server.post(asked(frames_url(5, 3, kind), aviot={"fps": 1}, max_tokens=16))
    parts = pictures(5, 3, kind)
    for number, content in enumerate(([*parts, text], [text, *parts])):
        encoded = server.service.answerer.videos.encoded
        messages = [{"role": "user", "content": content}]
        reply = server.client().chat.completions.create(
            model=NAME, messages=messages, max_tokens=16, extra_body={"aviot": {"fps": 1}}
        )
        assert reply.choices[0].message.content == expected["choices"][0]["message"]["content"], number
        assert reply.usage.visual_tokens == expected["usage"]["visual_tokens"]
        assert reply.aviot["frames"] == 5
        assert server.service.answerer.videos.encoded == encoded, "one video, however its frames are sent"
    turned = [{"role": "user", "content": [text, *reversed(parts)]}]
    server.client().chat.completions.create(model=NAME, messages=turned, max_tokens=1, extra_body={"aviot": {"fps": 1}})
    assert server.service.answerer.videos.encoded == encoded + 1, "another order is another video"


def test_pictures_are_asked_about_again_in_later_turns(server):
    first = {"role": "user", "content": [*pictures(3), {"type": "text", "text": "What is it?"}]}
    messages = [first, {"role": "assistant", "content": "A block."}, turn(None, "Why?")]
    told = [turn(frames_url(3), "What is it?"), *messages[1:]]
    ask = server.client().chat.completions.create
    replies = [ask(model=NAME, messages=each, max_tokens=8).choices[0].message.content for each in (messages, told)]
    assert replies[0] == replies[1]


def test_a_budget_of_the_server_is_that_of_requests_without_one(lm, clip, alone):
    with running(lm, budget=Budget(ratio=2), method="uniform") as server:
        for given, budget in (({}, 2), ({"budget": 3}, 3), ({"budget": {"keep": 0.25}}, Budget(keep=0.25))):
            status, reply = server.post(asked(clip, aviot=given))
            expected = alone(budget=budget, method="uniform")
            assert status == 200, reply
            assert reply["choices"][0]["message"]["content"] == expected.text
            assert reply["usage"]["visual_tokens"]["after"] == expected.tokens_after
    with running(lm, budget=AutoBudget.parse(f"{AUTO}1")) as server:
        _, reply = server.post(asked(clip))
        expected = alone(budget=AutoBudget.parse(f"{AUTO}1"))
        assert reply["choices"][0]["message"]["content"] == expected.text
        assert len(reply["aviot"]["steps"]) == len(expected.steps) == 2
        assert server.post(asked(clip, aviot={"method": "none"}))[0] == 200


def test_files_of_the_media_folder(server, folder, alone):
    for address in ("file:///1.mp4", f"file://{folder}/1.mp4", "file:1.mp4"):
        status, reply = server.post(asked(address))
        assert status == 200, reply
        assert reply["choices"][0]["message"]["content"] == alone(1).text


def test_provenance_comes_back_on_request(server, clip):
    status, reply = server.post(asked(clip, aviot={"provenance": True, "budget": 2}))
    assert status == 200
    told = reply["aviot"]["provenance"]
    assert sum(moment["tokens"] for moment in told["moments"]) > 0
    for moment in told["moments"]:
        assert sum(share for _, share in moment["frames"]) == pytest.approx(1, abs=0.02)
    status, reply = server.post(asked(clip, aviot={"provenance": "tokens", "method": "uniform", "budget": 2}))
    told = reply["aviot"]["provenance"]
    assert len(told["positions"]) == len(told["sources"]) == len(told["weights"])
    assert all(sum(weights) == pytest.approx(1) for weights in told["weights"])


def test_stop_texts_end_an_answer(server, clip, alone):
    whole = alone().text
    stop = whole[len(whole) // 2 :][:2]
    status, reply = server.post(asked(clip, stop=[stop]))
    assert status == 200
    assert reply["choices"][0]["message"]["content"] == whole[: whole.find(stop)].rstrip()
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_many_clients_get_the_answers_that_each_would_get_alone(server, folder, alone):
    questions = ("What is it?", "Why?", "And who came first?")
    work = [(number % 4, questions[number % 3], (2, 4)[number % 2], 4 + number % 9) for number in range(24)]

    def ask(one):
        number, question, budget, new = one
        given = asked(f"file:///{number}.mp4", question, max_tokens=new, aviot={"budget": budget})
        return server.post(given)

    before = server.metric('aviot_stage_seconds_count{stage="encode"}')
    with ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(ask, work))
    for (number, question, budget, new), (status, reply) in zip(work, replies, strict=True):
        assert status == 200, reply
        expected = alone(number, question, budget, max_new_tokens=new).text
        assert reply["choices"][0]["message"]["content"] == expected
    assert server.metric('aviot_stage_seconds_count{stage="encode"}') - before <= 4
    assert server.idle()


def test_models_health_metrics_and_documents(server):
    (listed,) = server.client().models.list()
    assert listed.id == NAME
    assert server.client().models.retrieve(NAME) == listed
    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here"):
        server.client().models.retrieve("other")
    status, _, said = server.request("GET", "/health")
    assert (status, json.loads(said)["status"]) == (200, "ok")
    assert "aviot_requests_total" in server.request("GET", "/metrics")[2].decode()
    status, _headers, page = server.request("GET", "/docs")
    assert status == 200
    assert b"/v1/chat/completions" in page
    assert "src=" not in page.decode()
    assert json.loads(server.request("GET", "/openapi.json")[2])["paths"]["/v1/chat/completions"]


def test_an_answer_is_explained_on_a_page(server, clip):
    _, reply = server.post(asked(clip, aviot={"budget": 2}))
    status, headers, page = server.request("GET", reply["aviot"]["explain"])
    assert status == 200
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert QUESTION in page.decode()
    assert server.request("GET", "/explain/chatcmpl-0")[0] == 404


AUTO = "auto:min=8,max=2,quality="


@pytest.mark.parametrize("stream", [False, True])
def test_an_automatic_budget_is_that_of_this_process(server, clip, alone, stream):
    for quality in (0, 1):  # never ask again, and always
        expected = alone(budget=AutoBudget.parse(f"{AUTO}{quality}"))
        asking = asked(clip, stream=stream) | ({"stream_options": {"include_usage": True}} if stream else {})
        reply = server.client().chat.completions.create(
            **asking, extra_body={"aviot": {"budget": f"{AUTO}{quality}", "provenance": True}}
        )
        if stream:
            *parts, last, counts = list(reply)
            pieces = [part.choices[0].delta.content for part in parts if part.choices[0].delta.content]
            assert pieces == [expected.text]  # complete, since it had to be judged
            about, usage = last.aviot, counts.usage
        else:
            assert reply.choices[0].message.content == expected.text
            about, usage = reply.aviot, reply.usage
        assert [step["budget"] for step in about["steps"]] == [step.budget for step in expected.steps]
        for step, other in zip(about["steps"], expected.steps, strict=True):
            assert step["tokens"] == other.tokens
            assert step["probability"] == pytest.approx(other.probability, abs=2e-4)
        assert about["budget"] == expected.steps[-1].budget
        assert about["provenance"]["moments"]
        assert usage.visual_tokens["after"] == expected.tokens_after
        assert usage.visual_tokens["read"] == expected.tokens_read
    assert server.idle()


def test_an_automatic_budget_of_methods_inside_the_decoder_and_of_none(server, clip, alone, monkeypatch):
    class Early(FastV):
        name = "early"

        def __init__(self):
            super().__init__(layer=1)

    monkeypatch.setitem(registry._registered, "early", Early)
    expected = alone(method="early", budget=AutoBudget.parse(f"{AUTO}1"))
    status, reply = server.post(asked(clip, aviot={"method": "early", "budget": f"{AUTO}1"}))
    assert status == 200, reply
    assert reply["choices"][0]["message"]["content"] == expected.text
    assert [step["tokens"] for step in reply["aviot"]["steps"]] == [step.tokens for step in expected.steps]
    status, reply = server.post(asked(clip, aviot={"method": "none", "budget": "auto"}))
    assert status == 200
    assert "steps" not in reply["aviot"]


def test_an_engine_without_probabilities_refuses_an_automatic_budget(server, clip, monkeypatch):
    monkeypatch.setattr(server.service.lm.engine, "tells_probabilities", False)
    status, reply = server.post(asked(clip, aviot={"budget": "auto"}))
    assert status == 422
    assert reply["error"]["code"] == "no_probabilities"
