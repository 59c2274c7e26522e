"""Requests: bytes sent to the app's server on loopback, which answers each with a status and goes on answering."""

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from logging import ERROR, Handler, LogRecord, getLogger
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from fuzz.conversation import ENDS, PORT, Exchange, converse, exchange_of
from fuzz.mutate import TEXTS, mutate_bytes, mutate_json
from fuzz.target import Broken, Limits, Target, require
from fuzz.videos import EXACT_X264

VIDEO_TESTS = Path(__file__).parents[1] / "video"
EXCHANGES = 10
SOON = 5.0
"""Seconds in which requests whose connections are closed must end, and then the app."""

ASK = "/v1/chat/completions"
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "get", "G\0T", "GET" * 3000, "é", "")
PATHS = (
    *(
        "/",
        "/status",
        "/v1/chat/completions",
        "/v1/streams",
        "/v1/streams/x/frames",
        "/explain/x/data",
        "/samples/x",
        "/videos",
        "/x",
        "//",
        "/../../etc/passwd",
        "/%2e%2e/x",
        "/?q=1",
        "/#",
        "http://elsewhere/",
    ),
    *(
        "*",
        "",
        "/\xe9",
        "/\0",
        "//[",
        "http://[",
        "/" + "a" * 70_000,
        "/;x",
        "/videos/",
        "/%",
        "/%00",
        "/?token=" + "x" * 100,
    ),
)
VERSIONS = (
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.0",
    "",
    "HTTP/2.0",
    "HTTP/9.9",
    "HTTP/1",
    "HTTP/-1.1",
    "HTTP/1.1 x",
)
OWN_HOSTS = (f"127.0.0.1:{PORT.decode()}", f"localhost:{PORT.decode()}")
FOREIGN_HOSTS = (
    "elsewhere",
    "elsewhere:80",
    f"127.0.0.1.elsewhere:{PORT.decode()}",
    "127.0.0.1@elsewhere",
    "192.0.2.1",
)
ODD_HOSTS = (
    "",
    " ",
    "[",
    "[::1",
    "[::1]:x",
    "localhost.:1",
    "127.1",
    "a b",
    "\xe9",
    ":",
    "127.0.0.1:99999999999",
    "x" * 9000,
)
FOREIGN_ORIGINS = ("null", "http://elsewhere", "https://127.0.0.1.elsewhere", "http://127.0.0.1:1", "file://")
ODD_ORIGINS = ("", "http://[", "x", "\xe9", "http://" + "a" * 9000, "://", "javascript:1")
LENGTHS = ("", "-1", "+5", "0x10", "1e3", "5, 5", "9" * 30, "999999999", "0", "1", "\xb2", " 7 ", "7\x0b")
TYPES = (
    "application/octet-stream",
    "application/json",
    "",
    "text/plain",
    "application/json; charset=utf-7",
    "x",
    "é/é",
)
GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # the beginning of TLS
    *(
        b"",
        b"\r\n" * 1000,
        b"\0" * 5000,
        b"GET",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost",
        b"PRI * HTTP/2.0\r\n\r\n",
    ),
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(300)) + b"\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\nHost: localhost\n folded\n\n",
)


def prepare(sources: Path) -> None:
    """Encode a clip of ten frames, two per second."""
    sys.path.insert(0, str(VIDEO_TESTS))
    from clips import encode

    encode(sources / "clip.mp4", pictures=10, rate=2, options=EXACT_X264)


def control(sources: Path, folder: Path) -> None:
    """Upload the clip and ask about it, as the page does."""
    clip = (sources / "clip.mp4").read_bytes()
    own = {"Host": OWN_HOSTS[0]}
    upload = _request("POST", "/videos", own | {"Content-Type": TYPES[0], "X-File-Name": "a.mp4"}, clip)
    ask = _request("POST", ASK, own | {"Content-Type": TYPES[1]}, json.dumps(_asked(clip)).encode())
    _write(folder, [exchange_of(upload, statuses=[200]), exchange_of(ask, statuses=[200])])


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Write ten requests; where one asks about the clip, it has been uploaded before."""
    clip = (sources / "clip.mp4").read_bytes()
    kinds = rng.choices(("get", "upload", "ask", "garbage"), (3, 3, 3, 1), k=EXCHANGES)
    exchanges = [MAKERS[kind](rng, clip) for kind in kinds]
    if rng.random() < 0.3:
        own = {"Host": OWN_HOSTS[0], "Content-Type": TYPES[0]}
        exchanges.insert(0, exchange_of(_request("POST", "/videos", own, clip), statuses=[200]))
    _write(folder, exchanges)
    return ", ".join(kinds)


def _write(folder: Path, exchanges: list[Exchange]) -> None:
    (folder / "exchanges.json").write_text(json.dumps(exchanges))


def _request(method: str, path: str, headers: dict[str, str], body: bytes = b"", version: str = "HTTP/1.1") -> bytes:
    given = {"Content-Length": str(len(body))} | headers if body or method == "POST" else headers
    lines = [f"{method} {path} {version}".rstrip(" "), *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


def _headers(rng: Random) -> tuple[dict[str, str], bool]:
    """Return a Host, perhaps an Origin, and whether one of them is of somewhere else."""
    headers, foreign = {"Host": rng.choice(OWN_HOSTS)}, False
    match rng.randrange(8):
        case 0:
            headers, foreign = {"Host": rng.choice(FOREIGN_HOSTS)}, True
        case 1:
            headers, foreign = headers | {"Origin": rng.choice(FOREIGN_ORIGINS)}, True
        case 2:
            headers = {"Host": rng.choice(ODD_HOSTS)}
        case 3:
            headers = headers | {"Origin": rng.choice(ODD_ORIGINS)}
        case 4:
            headers = {}
    return headers, foreign


def _make_get(rng: Random, clip: bytes) -> Exchange:
    headers, foreign = _headers(rng)
    if rng.random() < 0.2:
        headers |= {
            rng.choice(("Range", "Expect", "Connection", "Upgrade", "Cookie", "Accept")): rng.choice(TEXTS)[:500]
        }
    headers = {name: re.sub("[\r\n]", " ", value) for name, value in headers.items()}
    method = "GET" if rng.random() < 0.7 else rng.choice(METHODS)
    data = _request(method, rng.choice(PATHS), headers, version=rng.choice(VERSIONS))
    return exchange_of(data * rng.choice((1, 1, 1, 3)), end=rng.choice(ENDS), foreign=foreign)


def _make_upload(rng: Random, clip: bytes) -> Exchange:
    headers, foreign = _headers(rng)
    body, what = clip, rng.randrange(4)
    if what == 1:
        body, _ = mutate_bytes(rng, clip)
    elif what >= 2:
        body = rng.choice((b"", b"x", b"GIF89a", clip[:100], bytes(3_000_000)))
    headers |= {"Content-Type": TYPES[0] if rng.random() < 0.8 else rng.choice(TYPES)}
    headers |= {
        "X-File-Name": quote(rng.choice(("a.mp4", "../../a.sh", "a.mp4\0", *TEXTS)).encode("utf-8", "replace"))[:9000]
    }
    return exchange_of(
        _request("POST", "/videos", _with_length(rng, headers), body), end=rng.choice(ENDS), foreign=foreign
    )


def _make_ask(rng: Random, clip: bytes) -> Exchange:
    headers, foreign = _headers(rng)
    body = mutate_json(rng, _asked(clip), ("model", "messages", "aviot", "stream", "max_tokens"))[0]
    headers |= {"Content-Type": TYPES[1] if rng.random() < 0.8 else rng.choice(TYPES)}
    return exchange_of(_request("POST", ASK, _with_length(rng, headers), body), end=rng.choice(ENDS), foreign=foreign)


def _asked(clip: bytes) -> dict[str, Any]:
    """Return a question about the clip as the page asks it."""
    video = {"type": "video_url", "video_url": {"url": f"upload:{hashlib.sha256(clip).hexdigest()}"}}
    messages = [{"role": "user", "content": [video, {"type": "text", "text": "Why?"}]}]
    return {"model": "aviot", "messages": messages, "aviot": {"budget": 2}}


def _with_length(rng: Random, headers: dict[str, str]) -> dict[str, str]:
    """Return headers with a length that is wrong, or with chunks, now and then."""
    match rng.randrange(10):
        case 0:
            return headers | {"Content-Length": rng.choice(LENGTHS)}
        case 1:
            return headers | {"Transfer-Encoding": "chunked"}
    return headers


def _make_garbage(rng: Random, clip: bytes) -> Exchange:
    data = rng.choice((*GARBAGE, rng.randbytes(300), clip))
    if rng.random() < 0.3 and data:
        data, _ = mutate_bytes(rng, data)
    return exchange_of(data, end=rng.choice(ENDS))


MAKERS: dict[str, Callable[[Random, bytes], Exchange]] = {
    "get": _make_get,
    "upload": _make_upload,
    "ask": _make_ask,
    "garbage": _make_garbage,
}


def check(folder: Path) -> str:
    """Serve the bundled model, send the requests, and check every answer and that the server is as before."""
    from transformers.utils import logging

    from aviot.app.run import AppSettings, ServingApp
    from aviot.bundled import embedded_model
    from aviot.serve.run import At
    from aviot.session import VideoLM
    from aviot.web import body
    from aviot.web import server as web

    logging.disable_progress_bar()
    web.HEAD_SECONDS, body.BODY_SECONDS, body.SLOWEST_BYTES = 1.0, 2.0, 10**9  # before the client loses its patience
    lm = VideoLM.from_pretrained(embedded_model(), device="cpu")
    said = _Said()
    getLogger().addHandler(said)
    server = ServingApp(lm, AppSettings(upload_bytes=2_000_000, max_new_tokens=2), At(port=0))
    port = server.listener.getsockname()[1]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    statuses = [converse(port, each) for each in json.loads((folder / "exchanges.json").read_text())]
    alive = converse(port, exchange_of(_request("GET", "/status", {"Host": OWN_HOSTS[0]})))
    require(alive == 200, f"after these requests /status gives {alive}")
    _wait_until_idle(server.service)
    server.end()
    thread.join(SOON)
    require(not thread.is_alive(), "the app did not end")
    require(not said.lines, f"the terminal was told {said.lines[:1]!r:.1500}")
    return " ".join(map(str, statuses))


class _Said(Handler):
    """Collects the errors that the app logs."""

    def __init__(self) -> None:
        super().__init__(ERROR)
        self.lines: list[str] = []

    def emit(self, record: LogRecord) -> None:
        self.lines.append(self.format(record))


def _wait_until_idle(service: Any) -> None:
    """Wait until nothing is held of requests whose connections are closed."""
    decoder, videos, limit = service.answerer.decoder, service.answerer.videos, time.monotonic() + SOON
    while decoder.waiting or decoder.running or videos.progress or service.room.used:
        if time.monotonic() > limit:
            raise Broken(f"requests are still served {SOON:.0f} s after their end")
        time.sleep(0.02)


TARGET = Target(
    name="requests",
    prepare=prepare,
    control=control,
    write=write,
    check=check,
    errors=tuple,
    modules=(
        *("aviot.app.run", "aviot.serve.videos", "aviot.bundled", "aviot.video.files", "clips"),
        *("transformers.models.qwen2.modeling_qwen2", "transformers.models.siglip.modeling_siglip"),
        *("transformers.models.auto.tokenization_auto", "aviot.session"),
    ),
    limits=Limits(cpu_seconds=20.0, wall_seconds=90.0),
)
sys.path.insert(0, str(VIDEO_TESTS))
