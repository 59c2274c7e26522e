"""Helpers of the server's tests: a running server, small videos, and raw requests."""

import base64
import io
import json
import socket
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import av
import numpy as np
from openai import OpenAI
from PIL import Image

from aviot.serve.run import At, Serving, with_engine
from aviot.serve.settings import Settings

LOCAL, NAME = "127.0.0.1", "tiny"
QUESTION = "What is it?"


class Running:
    """A server in a thread, and clients of it."""

    def __init__(self, serving: Serving) -> None:
        self.serving, self.service = serving, serving.service
        self.port = serving.listener.getsockname()[1]

    def client(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"http://{LOCAL}:{self.port}/v1", api_key=key, max_retries=0, timeout=60)

    def request(self, method, path, body=None, **headers):
        """Return status, headers and body of one request."""
        connection = HTTPConnection(LOCAL, self.port, timeout=60)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        found = reply.status, reply.headers, reply.read()
        connection.close()
        return found

    def post(self, asked, **headers):
        """Return status and JSON of a request for an answer."""
        body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        headers = {"Content_Type": "application/json"} | headers
        status, _, said = self.request("POST", "/v1/chat/completions", body, **headers)
        return status, json.loads(said)

    def connect(self) -> socket.socket:
        return socket.create_connection((LOCAL, self.port), timeout=30)

    def idle(self, seconds: float = 10.0) -> bool:
        """Return whether nothing is held any more, after at most so many seconds."""
        answerer, room = self.service.answerer, self.service.room
        return eventually(
            lambda: not answerer.decoder.waiting and not answerer.decoder.running and not room.used, seconds
        )

    def metric(self, line: str) -> float:
        """Return the value of one line of the metrics."""
        text = self.request("GET", "/metrics")[2].decode()
        return next((float(one.rpartition(" ")[2]) for one in text.splitlines() if one.startswith(f"{line} ")), 0.0)


@contextmanager
def running(lm, at=None, engine="transformers", **settings):
    """Serve a model at a free port, in a thread, with an engine of its own."""
    made = Serving(with_engine(lm, engine, 4), Settings(name=NAME, **settings), at or At(port=0))
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    try:
        yield Running(made)
    finally:
        made.end()
        thread.join(30)
        if thread.is_alive():
            made.end()
            thread.join(10)
    assert not thread.is_alive()


def eventually(holds, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def write_clip(path: Path, seed: int = 0, frames: int = 12, size: int = 48) -> Path:
    """Write a small video of random blocks."""
    random = np.random.default_rng(seed)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=4)
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        for _ in range(frames):
            picture = random.integers(0, 256, (6, 6, 3), dtype=np.uint8).repeat(size // 6, 0).repeat(size // 6, 1)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


def data_url(path: Path) -> str:
    return f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"


def frames(count: int, seed: int = 0, kind: str = "JPEG") -> list[str]:
    """Return random pictures in base64."""
    random, parts = np.random.default_rng(seed), []
    for _ in range(count):
        file = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(file, kind)
        parts.append(base64.b64encode(file.getvalue()).decode())
    return parts


def frames_url(count: int, seed: int = 0, kind: str = "JPEG") -> str:
    """Return frames that were sampled already."""
    return f"data:video/jpeg;base64,{','.join(frames(count, seed, kind))}"


def pictures(count: int, seed: int = 0, kind: str = "JPEG") -> list[dict]:
    """Return the same frames as parts of a message, one each."""
    start = f"data:image/{kind.lower()};base64,"
    return [{"type": "image_url", "image_url": {"url": start + data}} for data in frames(count, seed, kind)]


def turn(url: str | None, text: str = QUESTION) -> dict:
    """Return a user's message."""
    video = [] if url is None else [{"type": "video_url", "video_url": {"url": url}}]
    return {"role": "user", "content": [*video, {"type": "text", "text": text}]}


def asked(url: str | None, text: str = QUESTION, **more) -> dict:
    """Return a request."""
    return {"model": NAME, "messages": [turn(url, text)], "max_tokens": 8} | more
