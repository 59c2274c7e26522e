"""Helpers for tests of the app's server: a running server, and raw requests."""

import json
import socket
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

from aviot import VideoLM
from aviot.explain.server import App, Limits
from aviot.explain.videos import Videos

LOCAL = "127.0.0.1"


@contextmanager
def serving(loaded, host=LOCAL, names=(), **settings):
    """Serve a tiny model at a free port; fail on unexpected errors."""
    said = []
    videos = Videos(VideoLM(*loaded), max_new_tokens=3, **settings)
    with App((host, 0), videos, Limits(2_000_000), said.append, names) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    assert said == []


def request(app, method, path, body=None, host=LOCAL, **headers):
    """Return status, headers and body of one request."""
    connection = HTTPConnection(host, app.server_address[1], timeout=30)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    found = reply.status, reply.headers, reply.read()
    connection.close()
    return found


def post(app, path, body=b"", **headers):
    status, _, said = request(app, "POST", path, body, **headers)
    return status, json.loads(said)


def upload(app, body, name="a.mp4", **headers):
    return post(app, "/videos", body, Content_Type="application/octet-stream", X_File_Name=name, **headers)


def ask(app, **asked):
    return post(app, "/ask", json.dumps(asked).encode(), Content_Type="application/json")


def raw(app, data, seconds=10.0):
    """Return everything that the server sends for bytes of any kind, until it closes the connection."""
    with socket.create_connection((LOCAL, app.server_address[1]), timeout=seconds) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(2**16), b""))


def cookie_of(app):
    """Return the cookie that the printed address is exchanged for."""
    parts = urlsplit(app.url)
    status, headers, _ = request(app, "GET", f"{parts.path}?{parts.query}")
    assert (status, headers["Location"]) == (303, "/")
    return headers["Set-Cookie"].partition(";")[0]
