"""Replies of a judge: what an address on loopback answers to a request for a verdict."""

import json
import socket
import threading
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutate import NUMBERS, TEXTS, mutate_bytes, mutate_json, nasty_value
from fuzz.target import Limits, Target, require

SOUND = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "{'pred': 'yes', 'score': 4}"}}]}
STATUSES = (
    "200 OK",
    "200 OK",
    "200 OK",
    "200 OK",
    "429 Slow",
    "500 x",
    "503 x",
    "401 x",
    "302 Found",
    "204 x",
    "100 x",
    "999 x",
)
WAITS = (
    *(str(number) for number in NUMBERS if number != 10**400),
    *(
        "Wed, 21 Oct 2099 07:28:00 GMT",
        "Wed, 99 Oct 99999 07:28:00 GMT",
        "Mon, 01 Jan 0001 00:00:00 -2359",
        "soon",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
        "1e400",
    ),
)
CONTENTS = (
    *(
        "{[1]: 2}",
        "{'pred': 'yes', 'score': 5",
        "{}",
        "{'pred': 'no'}",
        "{'pred': 'yes', 'score': 1e999}",
        "{1: 2, **{}}",
    ),
    *(
        "{'pred': 'yes', 'score': True}",
        "{'a': __import__('os')}",
        "{(1,): 2}",
        "{{'pred'}: 1}",
        "{" * 5000,
        "{'score': 1j}",
    ),
    *(
        "{'pred': 'yes', 'score': '4'} {'pred': 'no', 'score': 1}",
        "{" + "-" * 5000 + "1: 2}",
        "{" + "9" * 5000 + ": 1}",
    ),
    *(
        "{'pred': 'YES ', 'score': -0.0}",
        "\x1b[31m{'pred': 1}",
        "{'pred': 'yes', 'score': '\u0664'}",
        "{0x: 1}",
        "{'\\N{x}': 1}",
    ),
)


def prepare(sources: Path) -> None:
    """Need no sources."""


def control(sources: Path, folder: Path) -> None:
    """Write a sound reply."""
    (folder / "reply").write_bytes(_reply("200 OK", {}, json.dumps(SOUND).encode()))


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Write one reply: its body, its verdict, its headers or all its bytes mutated."""
    kind = rng.choice(("body", "verdict", "verdict", "headers", "bytes", "bytes"))
    body, what = json.dumps(SOUND).encode(), ""
    headers: dict[str, str] = {}
    if kind == "body":
        body, what = mutate_json(rng, SOUND, ("choices", "message", "content", "error"))
    elif kind == "verdict":
        content = rng.choice((*CONTENTS, *TEXTS, f"{{'pred': {nasty_value(rng)!r}, 'score': {nasty_value(rng)!r}}}"))
        body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
        what = f"{content!r:.80}"
    status = rng.choice(STATUSES) if kind == "headers" else "200 OK"
    if kind == "headers":
        headers = {
            rng.choice(("Retry-After", "Retry-After", "Location", "Content-Encoding", "Content-Length", "X")): ""
        }
        headers = {
            name: rng.choice(WAITS if name != "Location" else ("http://192.0.2.1/", "//x", "[")) for name in headers
        }
        body = rng.choice((body, b"", b"\x1b[31mno", bytes(2**21)))
        if "Retry-After" in headers and rng.random() < 0.7:
            status = rng.choice(("429 Slow", "503 x"))
        what = f"{status}, {headers}"
    data = _reply(status, headers, body)
    if kind == "bytes":
        data, what = mutate_bytes(rng, data)
    (folder / "reply").write_bytes(data)
    return f"{kind}: {what}"


def _reply(status: str, headers: dict[str, str], body: bytes) -> bytes:
    given = {"Content-Type": "application/json", "Content-Length": str(len(body))} | headers
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def check(folder: Path) -> str:
    """Ask the judge as an evaluation does; there is a verdict, or a reason why not."""
    from aviot.evaluation.endpoint import MAX_RETRY_WAIT, Endpoint, EndpointError
    from aviot.evaluation.judge import judge_messages, parse_verdict
    from aviot.utils.journal import as_line

    waits: list[float] = []
    with _Judge((folder / "reply").read_bytes()) as judge:
        endpoint = Endpoint(url=f"http://127.0.0.1:{judge.port}/v1", model="x", attempts=3, timeout=2.0, backoff=0.01)
        try:
            verdict: Any = endpoint.complete(judge_messages("Why?", "so", "because"), parse_verdict, waits.append)
            require(isinstance(verdict.correct, bool) and 0 <= verdict.score <= 5, f"the verdict is {verdict!r:.200}")
            said, outcome = {"correct": verdict.correct, "score": verdict.score}, "judged"
        except EndpointError as error:
            said, outcome = {"unjudged": str(error)}, "unjudged"
    as_line(said)
    require(all(0 <= wait <= MAX_RETRY_WAIT for wait in waits), f"it waits {waits!r:.200} s")
    return outcome


class _Judge:
    """Sends the same bytes to whoever connects."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "_Judge":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(2**16)
                    client.sendall(self._reply)
                    client.shutdown(socket.SHUT_WR)
                    client.recv(2**16)
                except OSError:
                    continue


TARGET = Target(
    name="judges",
    prepare=prepare,
    control=control,
    write=write,
    check=check,
    errors=tuple,
    modules=("aviot.evaluation.endpoint", "aviot.evaluation.judge", "aviot.utils.journal"),
    limits=Limits(wall_seconds=20.0),
)
