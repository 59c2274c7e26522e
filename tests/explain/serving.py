"""Helpers for tests of the app: a running server, and raw requests."""

import json
import logging
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

from aviot import VideoLM
from aviot.app.run import AppSettings, ServingApp
from aviot.serve.run import At

LOCAL = "127.0.0.1"
QUIET = 0.3  # seconds without a byte after which a connection that stays open has said all


class Running:
    """An app in a thread, and what it logged."""

    def __init__(self, serving):
        self.serving, self.service, self.access = serving, serving.service, serving.access
        self.port = serving.listener.getsockname()[1]
        self.url = serving.url

    @property
    def encoded(self):
        return self.service.answerer.videos.encoded


class Collected(logging.Handler):
    """A handler that keeps errors."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.said = []

    def emit(self, record):
        self.said.append(self.format(record))


@contextmanager
def collected():
    """Yield the list of the errors that are logged in the block."""
    handler = Collected()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.said
    finally:
        logging.getLogger().removeHandler(handler)


def made(loaded, host=LOCAL, names=(), **settings):
    """Return an app of a tiny model at a free port."""
    chosen = AppSettings(upload_bytes=2_000_000, max_new_tokens=3, **settings)
    return ServingApp(VideoLM(*loaded), chosen, At(host, 0, names))


@contextmanager
def serving(loaded, host=LOCAL, names=(), **settings):
    """Serve a tiny model in a thread; fail on unexpected errors."""
    with collected() as said:
        app = made(loaded, host, names, **settings)
        thread = threading.Thread(target=app.run, daemon=True)
        thread.start()
        try:
            yield Running(app)
        finally:
            app.end()
            thread.join(30)
        assert not thread.is_alive()
    assert said == []


def request(app, method, path, body=None, host=LOCAL, **headers):
    """Return status, headers and body of one request."""
    connection = HTTPConnection(host, app.port, timeout=30)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    found = reply.status, reply.headers, reply.read()
    connection.close()
    return found


def post(app, path, body=b"", **headers):
    """Return status and JSON of one request; of a refusal only the sentence."""
    status, _, said = request(app, "POST", path, body, **headers)
    return status, plain(json.loads(said))


def plain(reply):
    return {"error": reply["error"]["message"]} if "error" in reply else reply


def upload(app, body, name="a.mp4", **headers):
    return post(app, "/videos", body, Content_Type="application/octet-stream", X_File_Name=name, **headers)


def chat(app, video, question, ratio=4.0, history=(), cookie=None, **more):
    """Return status and reply to a question about a video that was uploaded."""
    texts = [text for turn in history for text in turn] + [question]
    parts = [{"type": "video_url", "video_url": {"url": f"upload:{video}"}}, {"type": "text", "text": texts[0]}]
    messages = [{"role": "user", "content": parts}]
    messages += [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts) if n]
    asked = {"model": "aviot", "messages": messages, "aviot": {"budget": ratio}} | more
    headers = {} if cookie is None else {"Cookie": cookie}
    return post(app, "/v1/chat/completions", json.dumps(asked).encode(), Content_Type="application/json", **headers)


def report_of(app, reply, *also, name="", **headers):
    """Return status and data of the explanation of an answer, beside other answers."""
    query = "&".join([*(f"also={other['id']}" for other in also), f"name={name}"])
    status, _, said = request(app, "GET", f"{reply['aviot']['explain']}/data?{query}", **headers)
    return status, plain(json.loads(said))


def ask(app, video, questions, ratio, name="x"):
    """Ask questions one after the other; return status and data of the page that explains all, or the refusal."""
    replies = []
    for question in questions:
        status, reply = chat(app, video, question, ratio)
        if status != 200:
            return status, reply
        replies.append(reply)
    return report_of(app, *replies, name=name)


def raw(app, data, seconds=10.0):
    """Return everything that the server sends for bytes of any kind, until it closes the connection or is quiet."""
    answer = b""
    with socket.create_connection((LOCAL, app.port), timeout=seconds) as connection:
        with suppress(ConnectionError):  # it may have refused already
            connection.sendall(data)
        with suppress(TimeoutError, ConnectionResetError):
            while piece := connection.recv(2**16):
                answer += piece
                connection.settimeout(QUIET)
    return answer


def statuses(answer):
    """Return the statuses of all responses in what a server sent."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def cookie_of(app):
    """Return the cookie that the printed address is exchanged for."""
    parts = urlsplit(app.url)
    status, headers, _ = request(app, "GET", f"{parts.path}?{parts.query}")
    assert (status, headers["Location"]) == (303, "/")
    return headers["Set-Cookie"].partition(";")[0]


def eventually(holds, seconds=10.0):
    """Return whether something comes true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
