"""Requests that get no answer: a status, a sentence, and a body that the real client understands."""

import json
import os
import tracemalloc

import openai
import pytest
from asking import NAME, QUESTION, asked, data_url, frames_url, pictures, running, turn, write_clip
from typer.testing import CliRunner

from aviot.cli import app
from aviot.serve.media import Library
from aviot.serve.run import At
from aviot.serve.settings import Limits, Settings
from aviot.video.checks import ReadLimits
from aviot.web.refusal import Refused

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def refused(server, status, said, given, **headers):
    """Check a refusal, and return its error."""
    found, reply = server.post(given, **headers)
    assert found == status, reply
    error = reply["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert said in error["message"], error
    return error


def test_the_openai_client_raises_its_own_errors(server, clip):
    create = server.client().chat.completions.create
    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here; this server has 'tiny'"):
        create(**asked(clip) | {"model": "other"})
    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here"):
        create(**asked(clip, stream=True) | {"model": "other"})
    with pytest.raises(openai.BadRequestError, match="tools are not supported"):
        create(**asked(clip), tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    with pytest.raises(openai.BadRequestError, match="ask about one video at a time: got 2 videos"):
        create(model=NAME, messages=[turn(clip), {"role": "assistant", "content": "A."}, turn(frames_url(2))])
    content = [*turn(clip)["content"], *turn(frames_url(2))["content"]]
    with pytest.raises(openai.BadRequestError, match="ask about one video at a time: got 2 videos"):
        create(model=NAME, messages=[{"role": "user", "content": content}])
    with pytest.raises(openai.BadRequestError, match="send a video_url part instead of an image"):
        create(model=NAME, messages=[{"role": "user", "content": [IMAGE, {"type": "text", "text": "Who?"}]}])
    with pytest.raises(openai.UnprocessableEntityError, match="is not a video"):
        create(**asked("data:video/mp4;base64,AAAA"))
    with pytest.raises(openai.BadRequestError, match="n must be 1"):
        create(**asked(clip), n=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"messages": []}, "messages is empty"),
        ({"messages": "hello"}, "messages: input should be a valid array"),
        ({"messages": [{"role": "user", "content": "Why?"}]}, "no video_url part was sent"),
        ({"messages": [{"role": "system", "content": "Be short."}]}, "put instructions into the user's text"),
        ({"messages": [{"role": "assistant", "content": "Yes."}]}, "expected user"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "expected a text or video_url part"),
        ({"model": None}, "the request names no model"),
        ({"temperature": 0.7}, "temperature must be 0"),
        ({"logprobs": True}, "logprobs is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format must be text"),
        ({"max_tokens": 0}, "max_tokens must be from 1 to 2,048"),
        ({"max_tokens": 5000}, "max_tokens must be from 1 to 2,048"),
        ({"max_completion_tokens": -1}, "max_completion_tokens must be from 1"),
        ({"stop": ["a", ""]}, "stop must be at most 4 texts"),
        ({"aviot": {"method": "nothing"}}, "method must be one of"),
        ({"aviot": {"budget": 0.5}}, "ratio must be a finite number above 1"),
        ({"aviot": {"budget": {"keep": 0.5, "tokens": 5}}}, "exactly one of ratio, keep, supports and tokens"),
        ({"aviot": {"budget": {"share": 1}}}, "got 'share'"),
        ({"aviot": {"budget": "most"}}, "a budget here is a ratio such as 4"),
        ({"aviot": {"budget": "auto:quality=2"}}, "quality"),
        ({"aviot": {"frames": 0}}, "frames must be a whole number"),
        ({"aviot": {"budgets": 4}}, "aviot.budgets"),
        ({"aviot": {"provenance": "all"}}, "aviot.provenance"),
    ],
)
def test_requests_that_ask_for_something_else(server, clip, change, said):
    refused(server, 400, said, asked(clip) | change)


def picture(url):
    return {"type": "image_url", "image_url": {"url": url}}


WHY = {"type": "text", "text": "Why?"}
TWO = pictures(2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([pictures(1)[0], WHY], "at least two frames of a video as image_url parts"),
        ([{"type": "image_url"}, WHY], "send a video_url part instead of an image"),
        ([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, WHY], "instead of an image"),
        ([TWO[0], WHY, TWO[1]], "the frames of a video must follow each other"),
        ([*turn(frames_url(2))["content"], *pictures(2, seed=1)], "ask about one video at a time: got 2 videos"),
        ([TWO[0], picture("https://example.com/a.png"), WHY], "frame 2: expected data:image/jpeg;base64,"),
        ([TWO[0], picture("file:///a.png"), WHY], "frame 2: expected data:image/jpeg;base64,"),
        ([TWO[0], picture("data:image/svg+xml;base64,AAAA"), WHY], "frame 2: expected data:image/jpeg;base64,"),
        ([TWO[0], picture(f"{TWO[0]['image_url']['url']},AAAA"), WHY], "frame 2: expected data:image/jpeg;base64,"),
        ([TWO[0], picture("data:image/png;base64,"), WHY], "the video's data is empty"),
        ([TWO[0], picture("data:image/png;base64,A*A="), WHY], "not valid base64"),
    ],
)
def test_pictures_that_are_no_video(server, content, said):
    refused(server, 400, said, asked(None) | {"messages": [{"role": "user", "content": content}]})


def test_pictures_that_cannot_be_read(server):
    unreadable = [picture("data:image/png;base64,AAAA"), *TWO, WHY]
    said = "the frames in the request/000000.jpg is not an image that can be read"
    error = refused(server, 422, said, asked(None) | {"messages": [{"role": "user", "content": unreadable}]})
    assert error["code"] == "video_not_read"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.com/a.mp4", "this server fetches nothing from other machines"),
        ("ftp://example.com/a.mp4", "must begin with data: or file:"),
        ("/etc/passwd", "must begin with data: or file:"),
        ("data:image/png;base64,AAAA", "expected data:video/mp4;base64"),
        ("data:video/mp4;base64,", "the video's data is empty"),
        ("data:video/mp4;base64,A*A=", "not valid base64"),
        ("data:video/jpeg;base64,AAAA,,AAAA", "the video's data is empty"),
        ("file:///nothing.mp4", "there is no such video"),
        ("file://elsewhere/0.mp4", "there is no such video"),
        ("file:///../secret.mp4", "there is no such video"),
        ("file:///%2e%2e/secret.mp4", "there is no such video"),
        ("file:///..%2fsecret.mp4", "there is no such video"),
        ("file:///sub/../../secret.mp4", "there is no such video"),
        ("file:///0.mp4%00.txt", "there is no such video"),
        ("file:///link.mp4", "there is no such video"),
        ("file:///linked/secret.mp4", "there is no such video"),
        ("file:///pipe", "there is no such video"),
        ("file:///", "there is no such video"),
        ("file://[", "there is no such video"),
        (f"file:///{'a' * 5000}", "there is no such video"),
    ],
)
def test_addresses_that_are_not_read(server, folder, url, said):
    secret = folder.parent / "secret.mp4"
    if not secret.exists():
        write_clip(secret)
        (folder / "link.mp4").symlink_to(secret)
        (folder / "linked").symlink_to(folder.parent)
        os.mkfifo(folder / "pipe")
    refused(server, 400, said, asked(url))


def test_a_media_folder_that_is_reached_by_a_link(lm, folder, tmp_path):
    """A client that shares the disk names files as it sees them, and so does whoever starts the server."""
    (tmp_path / "videos").symlink_to(folder)
    with running(lm, media_folder=tmp_path / "videos") as server:
        for address in (f"file://{tmp_path}/videos/0.mp4", f"file://{folder}/0.mp4", "file:///0.mp4"):
            assert server.post(asked(address))[0] == 200, address
        for outside in (f"file://{tmp_path}/0.mp4", f"file://{tmp_path}/videos/../0.mp4", f"file://{tmp_path}/videos"):
            refused(server, 400, "there is no such video", asked(outside))


def test_frames_are_counted_before_they_are_split(folder):
    library, url = Library(Settings(name=NAME)), "data:video/jpeg;base64," + "," * 2_000_000
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="2,000,001 frames; this server takes at most 1,024"):
            library.find(url)
        assert tracemalloc.get_traced_memory()[1] < len(url)
    finally:
        tracemalloc.stop()


def test_bodies_that_are_no_requests(server, clip):
    refused(server, 400, "not valid JSON", b"{")
    refused(server, 400, "not valid JSON", b"\xff\xfe")
    refused(server, 400, "messages: field required", b"{}")
    refused(server, 400, "has too many values", b'{"messages":[' + b"1," * 300_000 + b"1]}")
    refused(server, 415, "expected a body of type application/json", asked(clip), Content_Type="text/plain")
    assert server.request("GET", "/v1/chat/completions")[0] == 405
    status, _, said = server.request("GET", "/nothing")
    assert (status, json.loads(said)["error"]["code"]) == (404, "not_found")
    with server.connect() as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert b"400" in connection.recv(100)


def test_an_automatic_budget_needs_an_engine_that_tells_probabilities():
    """The server is not started, where each request would be refused."""
    words = ["serve", "--budget", "auto", "--engine", "http://127.0.0.1:9/", "--port", "0"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "--budget auto needs probabilities of answers, which --engine http://127.0.0.1:9/" in done.stderr


def test_who_may_ask(server, clip):
    refused(server, 403, "answers only to the address", asked(clip), Host="evil.example")
    refused(server, 403, "from a browser", asked(clip), Origin="https://evil.example")


def test_a_key_is_needed_where_one_is_set(lm, clip):
    with running(lm, At(port=0, key="secret-key")) as server:
        with pytest.raises(openai.AuthenticationError, match="the API key is wrong"):
            server.client("other-key").models.list()
        assert [model.id for model in server.client("secret-key").models.list()] == [NAME]
        assert refused(server, 401, "no API key", asked(clip))["type"] == "authentication_error"
        assert server.request("GET", "/metrics")[0] == 401
        assert server.request("GET", "/health")[0] == 200


def test_other_addresses_always_have_a_key(lm):
    with running(lm, At(host="0.0.0.0", port=0)) as server:
        assert server.serving.key is not None
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/v1/models", Authorization=f"Bearer {server.serving.key}")[0] == 200


def test_each_limit_has_its_status(lm, clip, folder, tmp_path):
    limits = Limits(upload_bytes=20_000, uploads_bytes=20_000, frames=3, video_seconds=2.5, new_tokens=4)
    long = write_clip(tmp_path / "long.mp4", frames=14)
    with running(lm, media_folder=tmp_path, limits=limits, max_new_tokens=4) as server:
        refused(server, 413, "more than 0 MB", asked("data:video/mp4;base64," + "A" * 30_000))
        refused(server, 422, "at most 3 frames", asked(clip, max_tokens=4, aviot={"frames": 4}))
        refused(server, 422, "at most 3", asked(frames_url(4), max_tokens=4))
        many = [{"role": "user", "content": [*pictures(4), {"type": "text", "text": QUESTION}]}]
        refused(server, 422, "4 frames; this server takes at most 3", asked(None, max_tokens=4) | {"messages": many})
        refused(server, 422, "lasts 4 s; this server takes at most 2 s", asked(f"file:///{long.name}", max_tokens=4))
        refused(server, 400, "from 1 to 4", asked(clip, max_tokens=5))
    slow = Limits(read=ReadLimits(seconds=1e-6, seconds_per_megabyte=0))
    with running(lm, limits=slow) as server:
        refused(server, 422, "was not read within", asked(data_url(folder / "1.mp4")))


def test_a_prompt_that_is_too_long(server, clip):
    refused(server, 422, "compress more", asked(clip, QUESTION * 8000, max_tokens=2000))
