"""Streams by number: frames in requests, questions at any moment, and everything that can be wrong with them."""

import base64
import io
import json
import threading

import numpy as np
import openai
import pytest
from asking import NAME, QUESTION, asked, eventually, running, turn, write_clip
from PIL import Image

from aviot import StreamingSession

STREAMS = "/v1/streams"
JSON = {"Content_Type": "application/json"}


def pictures(count, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (24, 24, 3), dtype=np.uint8) for _ in range(count)]


def png(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def opened(server, **options):
    status, _, body = server.request("POST", STREAMS, json.dumps(options).encode(), **JSON)
    assert status == 201, body
    return json.loads(body)["id"]


def push(server, number, body, query="", **headers):
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    status, _, said = server.request("POST", f"{STREAMS}/{number}/frames{query}", data, **(headers or JSON))
    return status, json.loads(said)


def frames(given, times, **more):
    data = ",".join(base64.b64encode(png(picture)).decode() for picture in given)
    return {"frames": f"data:video/jpeg;base64,{data}", "times": times} | more


def ask(server, number, **about):
    reply = server.client().chat.completions.create(**asked(f"stream:{number}"), extra_body={"aviot": about})
    return reply.choices[0].message.content, reply


@pytest.fixture
def number(server):
    made = opened(server, fps=2.0)
    yield made
    server.request("DELETE", f"{STREAMS}/{made}")


def test_answers_are_those_of_a_session_in_python(server, lm):
    """The same frames, pushed by requests and in this process, give the same memory and the same answer."""
    given, times = pictures(20), [i / 2 for i in range(20)]
    per_frame = lm.open(np.stack(given[:2]), source_fps=2.0).encoded.tokens_per_frame
    with StreamingSession(lm, memory_tokens=6 * per_frame, fps=2.0) as session:
        session.push(np.stack(given), times)
        session.wait(60)
        expected = session.ask(QUESTION, budget=2, max_new_tokens=8)
    number = opened(server, fps=2.0, memory_tokens=6 * per_frame)
    status, told = push(server, number, frames(given, times, wait=True))
    assert (status, told["queued"], told["status"]["encoded"]) == (200, 20, 20)
    text, reply = ask(server, number, budget=2, provenance=True)
    assert text == expected.text
    assert reply.usage.visual_tokens == {"before": expected.tokens_before, "after": expected.tokens_after}
    assert reply.aviot["stream"]["status"]["time"] == 9.5
    assert "explain" not in reply.aviot
    supports = reply.aviot["provenance"]["supports"]
    assert [each["count"] for each in supports] == [record.count for record in expected.records]
    assert supports[0]["first"] == 0
    assert supports[-1] == {"first": 19, "last": 19, "count": 1, "seconds": [9.5, 9.5]}
    status, _, body = server.request("DELETE", f"{STREAMS}/{number}")
    assert (status, json.loads(body)["status"]["ended"]) == (200, True)


def test_single_pictures_and_pieces_of_video(server, number, folder):
    """A picture has the time in the address; pieces of video follow each other."""
    for second in range(3):
        status, told = push(server, number, png(pictures(1)[0]), f"?time={second}&wait=true", Content_Type="image/png")
        assert (status, told["queued"]) == (200, 1)
    clip = (folder / "1.mp4").read_bytes()  # 12 frames, 4 per second
    status, told = push(server, number, clip, "?time=3&wait=true", Content_Type="video/mp4")
    assert (status, told["status"]["time"]) == (200, 3 + 2.5)
    status, told = push(server, number, clip, "?wait=true", Content_Type="video/mp4")
    assert (status, told["status"]["time"]) == (200, 6 + 2.5)
    assert told["status"]["encoded"] == 3 + 6 + 6
    assert json.loads(server.request("GET", f"{STREAMS}/{number}")[2])["status"]["seen"] == 15


def test_streamed_answers_and_conversations(server, number):
    push(server, number, frames(pictures(5), [0, 1, 2, 3, 4], wait=True))
    whole, _ = ask(server, number)
    client = server.client().chat.completions
    chunks = list(client.create(**asked(f"stream:{number}", stream=True)))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    talk = [turn(f"stream:{number}"), {"role": "assistant", "content": whole}, turn(None, "And before?")]
    assert client.create(model=NAME, messages=talk, max_tokens=4).choices[0].message.content is not None


def test_refusals_say_what_to_do(server, number):
    assert push(server, "0" * 32, b"x", Content_Type="image/png")[0] == 404
    for body, headers, query, status, said in (
        (b"", {"Content_Type": "image/png"}, "", 400, "no body"),
        (b"no picture", {"Content_Type": "image/png"}, "", 422, "picture in the request"),
        (b"no video", {"Content_Type": "video/mp4"}, "", 422, "the video in the request"),
        (b"text", {"Content_Type": "text/plain"}, "", 415, "image/jpeg"),
        (b"{", JSON, "", 400, "not valid JSON"),
        (b'{"frames": "data:video/mp4;base64,AAAA", "speed": 2}', JSON, "", 400, "speed"),
        (frames(pictures(2), None), JSON, "", 400, "give the times of the 2 frames"),
        (frames(pictures(2), [1]), JSON, "", 400, "one time in seconds per frame"),
        (frames(pictures(65), list(range(65))), JSON, "", 422, "at most 64"),
        (png(pictures(1)[0]), {"Content_Type": "image/png"}, "?time=soon", 400, "time must be a number"),
        (png(pictures(1)[0]), {"Content_Type": "image/png"}, "?at=1", 400, "expected time and wait"),
    ):
        found, told = push(server, number, body, query, **headers)
        assert found == status, told
        assert said in told["error"]["message"], told
    with pytest.raises(openai.UnprocessableEntityError, match="no frame has been encoded yet"):
        ask(server, number)
    push(server, number, frames(pictures(5), [0, 1, 2, 3, 4], wait=True))
    with pytest.raises(openai.BadRequestError, match="leave frames and fps out"):
        ask(server, number, frames=4)
    with pytest.raises(openai.UnprocessableEntityError, match="a stream keeps no frames"):
        ask(server, number, method="visionzip")
    with pytest.raises(openai.NotFoundError, match="there is no such stream here"):
        ask(server, "../" + number)
    for options, said in (({"fps": 0}, "fps"), ({"memory_tokens": 0}, "memory_tokens"), ({"speed": 1}, "speed")):
        status, _, body = server.request("POST", STREAMS, json.dumps(options).encode(), **JSON)
        assert status == 400
        assert said in json.loads(body)["error"]["message"]


def test_limits_and_the_end_of_idle_streams(lm):
    with running(lm, streams=2, stream_seconds=1.5, stream_bytes=2_000_000) as server:
        first, _second = opened(server, memory_bytes=10**9), opened(server)
        assert server.metric("aviot_streams") == 2
        status, headers, body = server.request("POST", STREAMS, b"{}", **JSON)
        assert (status, headers["Retry-After"]) == (429, "2")
        assert "2 streams are open already" in json.loads(body)["error"]["message"]
        _, told = push(server, first, frames(pictures(30), list(range(30)), wait=True))
        assert 0 < told["status"]["memory_bytes"] <= 2_000_000
        assert eventually(lambda: server.metric("aviot_streams") == 0)
        assert push(server, first, b"x", Content_Type="image/png")[0] == 404
        assert eventually(lambda: not [t for t in threading.enumerate() if t.name == "aviot-stream"])
    with running(lm, stream_bytes=2000) as server:
        status, told = push(server, opened(server), frames(pictures(2), [0, 1], wait=True))
        assert (status, told["error"]["code"]) == (422, "stream_failed")
        assert "give room for at least 4" in told["error"]["message"]
    with running(lm, streams=0) as server:
        status, _, body = server.request("POST", STREAMS, b"{}", **JSON)
        assert (status, json.loads(body)["error"]["message"]) == (404, "this server takes no streams; send a video")


def test_many_ask_while_frames_arrive(server, number):
    push(server, number, frames(pictures(4), [0, 1, 2, 3], wait=True))
    failures, stop = [], threading.Event()

    def keep_asking():
        while not stop.is_set():
            try:
                _, reply = ask(server, number, budget=2)
                status = reply.aviot["stream"]["status"]
                assert status["supports"] <= status["capacity"]
            except Exception as error:
                failures.append(error)
                return

    askers = [threading.Thread(target=keep_asking) for _ in range(3)]
    for asker in askers:
        asker.start()
    for second in range(4, 40, 4):
        status, _ = push(server, number, frames(pictures(4, second), list(range(second, second + 4))))
        assert status == 200
    stop.set()
    for asker in askers:
        asker.join(60)
    assert not failures
    assert server.idle()


def test_a_broken_piece_leaves_the_stream_alone(server, number, tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", seed=3).read_bytes()
    push(server, number, clip, "?wait=true", Content_Type="video/mp4")
    assert push(server, number, clip[: len(clip) // 3], Content_Type="video/mp4")[0] == 422
    status, told = push(server, number, clip, "?wait=true", Content_Type="video/mp4")
    assert (status, told["status"]["time"]) == (200, 3 + 2.5)
