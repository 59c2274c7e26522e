"""Clients that leave, stall or come in crowds: the server answers the next request, and nothing is held."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from asking import LOCAL, asked, eventually, running, write_clip

from aviot.engine.continuous import ContinuousEngine
from aviot.serve.settings import Limits
from aviot.web import body
from aviot.web import server as web
from aviot.web.access import Bound


def head(length: int | None, path: str = "/v1/chat/completions") -> bytes:
    """Return the head of a request for an answer."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{size}\r\n\r\n".encode()


def local(server, data: bytes) -> bytes:
    return data.replace(b"localhost", f"localhost:{server.port}".encode())


def sent(server, given: dict) -> socket.socket:
    """Return a connection on which a request was sent."""
    connection, data = server.connect(), json.dumps(given).encode()
    connection.sendall(local(server, head(len(data))) + data)
    return connection


@pytest.fixture
def slow(monkeypatch):
    """Make every step of all batches take longer."""
    step = ContinuousEngine._step

    def slowly(self, batch):
        time.sleep(0.02)
        step(self, batch)

    monkeypatch.setattr(ContinuousEngine, "_step", slowly)


def test_clients_that_leave_in_the_middle_of_an_upload(server, clip):
    for _ in range(20):
        with server.connect() as connection:
            connection.sendall(local(server, head(1_000_000)) + b'{"model": "tiny"' + b" " * 1000)
    assert server.idle()
    assert server.post(asked(clip))[0] == 200


def test_clients_that_leave_in_the_middle_of_an_answer(server, clip, slow):
    given = asked(clip, max_tokens=1500)
    for stream in (True, False):
        connections = [sent(server, given | {"stream": stream}) for _ in range(6)]
        assert eventually(lambda: server.service.answerer.decoder.running >= 4)
        for connection in connections:
            connection.close()
        started = time.monotonic()
        assert server.idle()
        assert time.monotonic() - started < 8  # far from the time of 1,500 tokens
    assert server.post(asked(clip))[0] == 200


def test_a_prompt_that_takes_long_to_submit_holds_up_no_other_request(server, clip, monkeypatch):
    engine = server.service.lm.engine
    submit, begun, go_on, ended = engine.submit, threading.Event(), threading.Event(), threading.Event()

    def slow(inputs, new, deliver, reducing=None):
        begun.set()
        go_on.wait(5)
        cancel = submit(inputs, new, deliver, reducing)
        return lambda: (ended.set(), cancel())

    monkeypatch.setattr(engine, "submit", slow)
    connection = sent(server, asked(clip, max_tokens=2000))
    assert begun.wait(30)
    start = time.monotonic()
    assert server.request("GET", "/health")[0] == 200
    assert time.monotonic() - start < 3
    connection.close()
    assert server.idle(3)  # while the prompt is still being submitted
    go_on.set()
    assert ended.wait(10)


def test_a_queue_that_is_full_refuses(lm, clip, slow):
    with running(lm, limits=Limits(queue=2)) as server:
        given = asked(clip, max_tokens=200, stream=True)
        connections = [sent(server, given) for _ in range(2)]
        answerer = server.service.answerer
        assert eventually(lambda: answerer.decoder.running + answerer.decoder.waiting == 2)
        status, headers, said = server.request(
            "POST", "/v1/chat/completions", json.dumps(given).encode(), Content_Type="application/json"
        )
        assert (status, headers["Retry-After"]) == (429, "2")
        assert json.loads(said)["error"]["type"] == "rate_limit_error"
        for connection in connections:
            connection.close()
        assert server.idle()
        assert server.post(asked(clip))[0] == 200


def test_times_are_limited(lm, clip, slow):
    with running(lm, limits=Limits(answer_seconds=0.05)) as server:
        assert server.post(asked(clip, max_tokens=1500))[0] == 504
        assert server.idle()
    with running(lm, limits=Limits(answer_seconds=3)) as server:
        assert server.post(asked(clip, max_tokens=1))[0] == 200  # what follows begins at once
        status, _, text = server.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(asked(clip, max_tokens=1500, stream=True)).encode(),
            Content_Type="application/json",
        )
        assert status == 200
        assert '"code":"answer_timeout"' in text.decode().splitlines()[-2]
        assert server.idle()
    with running(lm, limits=Limits(wait_seconds=1e-3)) as server:
        assert server.post(asked(clip))[0] == 503


def test_bodies_come_in_time(server, clip, monkeypatch):
    monkeypatch.setattr(body, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(body, "SLOWEST_BYTES", 1e9)
    with server.connect() as connection:
        connection.sendall(local(server, head(1000)) + b"{")
        assert b"408" in connection.recv(1000).splitlines()[0]
    assert server.idle()


def test_large_uploads_are_refused_at_once(server, clip):
    for length in (2_000_000_000, None):
        with server.connect() as connection:
            connection.sendall(local(server, head(length)))
            reply = b""
            if length is None:
                piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
                try:
                    for _ in range(200):
                        connection.sendall(piece)
                except OSError:
                    pass
            try:
                reply = connection.recv(1000)
            except ConnectionError:
                assert length is None
            assert not reply or b"413" in reply.splitlines()[0]
    assert server.idle()
    assert server.post(asked(clip))[0] == 200


def test_all_uploads_together_are_bounded(server, clip, monkeypatch):
    monkeypatch.setattr(server.service.room, "total", 1_000_000)
    with server.connect() as connection:
        connection.sendall(local(server, head(950_000)) + b"{" + b" " * 899_999)
        assert eventually(lambda: server.service.room.used == 900_000)
        assert server.post(asked(clip))[0] == 200
        with server.connect() as other:
            other.sendall(local(server, head(200_000)) + b"{" + b" " * 150_000)
            assert b"503" in other.recv(1000).splitlines()[0]
    assert server.idle()


def test_slow_readers_hold_no_place(server, clip):
    connections = []
    for _ in range(6):
        connection = sent(server, asked(clip, max_tokens=60, stream=True))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connections.append(connection)
    assert server.idle(30)
    assert server.post(asked(clip))[0] == 200
    for connection in connections:
        connection.close()


def test_connections_without_a_request_are_closed(server, clip, monkeypatch):
    monkeypatch.setattr(web, "HEAD_SECONDS", 0.5)
    with server.connect() as silent, server.connect() as half:
        half.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        assert silent.recv(10) == b""
        assert half.recv(10) == b""


def test_a_page_is_sent_whole_to_a_slow_reader(monkeypatch):
    monkeypatch.setattr(web, "HEAD_SECONDS", 0.5)
    page = bytes(20_000_000)

    async def app(scope, receive, send):
        size = str(len(page)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": page})

    listener = web.listening(Bound(socket.AF_INET, (LOCAL, 0)))
    server = web.WebServer(app, ending_seconds=1)
    thread = threading.Thread(target=server.run_at, args=(listener,), daemon=True)
    thread.start()
    connection = HTTPConnection(LOCAL, listener.getsockname()[1], timeout=30)
    try:
        connection.request("GET", "/")
        reply = connection.getresponse()
        time.sleep(2.5)
        assert len(reply.read()) == len(page)
    finally:
        connection.close()
        server.end()
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


def test_five_hundred_connections(server, clip):
    connections = [server.connect() for _ in range(500)]
    assert server.post(asked(clip))[0] == 200
    for connection in connections:
        connection.close()
    assert eventually(lambda: len(server.serving._server.server_state.connections) < 10)


def test_a_decoder_that_crashes(server, clip, monkeypatch, caplog):
    def crash(batch):
        raise RuntimeError("secret details")

    with monkeypatch.context() as patched:
        patched.setattr(server.service.lm.engine, "_logits", crash)
        status, reply = server.post(asked(clip))
        assert status == 500
        assert "secret" not in reply["error"]["message"]
    assert "secret details" in caplog.text
    assert server.post(asked(clip))[0] == 200


def test_an_end_finishes_what_was_taken(lm, clip, slow):
    with running(lm) as server:
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(server.post, asked(clip, max_tokens=60))
            assert eventually(lambda: server.service.answerer.decoder.running == 1)
            server.serving.end()
            assert reply.result(30)[0] == 200
        assert eventually(lambda: not server.serving._server.servers[0].is_serving())


def test_the_command_ends_properly(tmp_path):
    write_clip(tmp_path / "a.mp4")
    options = ["--port", "0", "--device", "cpu", "--media-folder", str(tmp_path)]
    command = [sys.executable, "-m", "aviot", "serve", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(process.stdout.readline()), daemon=True)
    reader.start()
    reader.join(120)
    assert lines[0].startswith("http://127.0.0.1:"), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.rstrip().endswith("ended")
