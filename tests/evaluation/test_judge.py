"""The judge against a failing server: requests are retried, then reported, and never silently scored."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from aviot.evaluation.endpoint import Endpoint, EndpointError
from aviot.evaluation.item import Item
from aviot.evaluation.judge import MAX_FAILURES_IN_A_ROW, judge_messages, judge_rows, parse_verdict


class Server:
    """Answers each request by the next of a script; the last one for ever."""

    def __init__(self, *script):
        self.script, self.requests = list(script), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body, self.headers.get("Authorization")))
                act = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                act(self)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def reply(content, status=200, **headers):
    def act(handler):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return act


def says(text):
    return reply({"choices": [{"message": {"role": "assistant", "content": text}}]})


def hangs(handler):
    time.sleep(1.0)


def drips(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(30):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def breaks_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')


def endless_head(handler):
    for _ in range(40):
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\nX: " + b"x" * 8000 + b"\r\n\r\n")


def drips_head(handler):
    handler.wfile.write(b"HTTP/1.1 ")
    for _ in range(30):
        handler.wfile.write(b"1")
        time.sleep(0.05)


def goes_on(handler):
    """Say for ever that a reply will come."""
    for _ in range(60):
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


def bad_chunks(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\nzz\r\n")


YES = says("{'pred': 'yes', 'score': 4}")


@pytest.fixture
def serve():
    servers = []

    def start(*script):
        servers.append(Server(*script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def asked(server, waits=None, **changes):
    endpoint = Endpoint(
        **({"url": server.url, "model": "judge", "timeout": 10.0, "attempts": 3, "backoff": 0.5} | changes)
    )
    messages = judge_messages("What?", "a cat", "the cat")
    return endpoint.complete(messages, parse_verdict, (waits if waits is not None else []).append)


def test_a_verdict(serve):
    server = serve(YES)
    verdict = asked(server)
    assert (verdict.correct, verdict.score) == (True, 4.0)
    path, body, key = server.requests[0]
    assert (path, body["model"], body["temperature"], key) == ("/v1/chat/completions", "judge", 0, None)
    assert "Question: What?\nTrue answer: a cat\nModel's answer: the cat" in body["messages"][1]["content"]


@pytest.mark.parametrize(
    "trouble",
    [
        reply({"error": "slow down"}, 429),
        reply({}, 500),
        reply({}, 503),
        breaks_off,
        reply(b"<html>"),
        reply({"choices": []}),
        reply({"choices": [{"message": {"content": None}}]}),
        reply([1, 2]),
        says("yes"),
        says("{'pred': 'maybe', 'score': 3}"),
        says("{'pred': 'yes', 'score': 7}"),
        says("{'pred': 'yes', 'score': 'nan'}"),
        says("{'pred': 'yes'}"),
        says("{'pred': 'yes', 'score': 5} {'pred': 'no', 'score': 0}"),
        says("{'pred': __import__('os').getcwd(), 'score': 5}"),
        reply(b" " * (2**20 + 10)),
        reply(b"[" * 100_000),
        says("{'pred': " + "[" * 100_000 + "}"),
        says("{[1]: 2}"),
        says("{{1: 2}: 3}"),
        says("{'pred': 'yes', 'score': " + "-" * 1500 + "1}"),
        says("{'pred': 'yes', 'score': " + "-" * 90_000 + "1}"),
        says("{'pred': 'yes', 'score': " + "9" * 1500 + "}"),
        says('{"pred": "yes", "score": NaN}'),
        says('{"pred": "yes", "score": 1e999}'),
        says('{"pred": "yes", "score": true}'),
        says('{"pred": "yes", "score": [4]}'),
        says("{**{}, 'pred': 'yes', 'score': 4}"),
        says("{'pred', 'yes'}"),
        says("\ud800"),
        reply({"choices": [{"message": {"content": {"pred": "yes", "score": 4}}}]}),
        reply({"choices": {"0": 1}}),
        reply(b'{"choices": ' + b"9" * 5000 + b"}"),
        reply(b"\xff\xfe\x00"),
        reply(b""),
        reply(b"\x1f\x8b\x08", Content_Encoding="gzip"),
        endless_head,
        bad_chunks,
    ],
)
def test_trouble_is_retried_then_reported(serve, trouble):
    assert asked(serve(trouble, trouble, YES)).correct
    server = serve(trouble)
    waits = []
    with pytest.raises(EndpointError, match=r"asked 3 times"):
        asked(server, waits)
    assert len(server.requests) == 3
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize("slow", [hangs, drips, drips_head, goes_on])
def test_slow_servers_are_timed_out(serve, slow):
    assert asked(serve(slow, slow, YES), timeout=0.4, attempts=9).correct
    server, began = serve(slow), time.monotonic()
    with pytest.raises(EndpointError, match=r"no reply: .* \(asked 2 times\)"):
        asked(server, timeout=0.4, attempts=2)
    assert len(server.requests) == 2
    assert time.monotonic() - began < 2.5


def test_a_server_that_is_not_there():
    with pytest.raises(EndpointError, match="no reply"):
        Endpoint(url="http://127.0.0.1:9/v1", model="m", attempts=2).complete([], str, lambda _: None)


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7, 7),
        ("9999", 120, 120),
        ("nonsense", 0.5, 0.5),
        ("0", 0.5, 0.5),
        ("nan", 0.5, 0.5),
        ("1e300", 120, 120),
        ("1e999", 120, 120),
        ("-1e300", 0.5, 0.5),
        ("9" * 5000, 120, 120),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 120, 120),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 0.5, 120),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.5, 0.5),
        ("Mon, 01 Jan 2030 00:00:00 +99999999999999999999", 0.5, 0.5),
        ("Mon, 01 Jan 0001 00:00:00 GMT", 0.5, 0.5),
        ("Mon, 99 Jan 2030 99:99:99 GMT", 0.5, 0.5),
    ],
)
def test_retry_after_is_obeyed(serve, header, low, high):
    waits = []
    asked(serve(reply({}, 429, Retry_After=header), YES), waits)
    assert low <= waits[0] <= high


def test_retry_after_as_a_date(serve):
    from email.utils import formatdate

    waits = []
    asked(serve(reply({}, 429, Retry_After=formatdate(time.time() + 30, usegmt=True)), YES), waits)
    assert 25 < waits[0] <= 30


@pytest.mark.parametrize(("status", "permanent"), [(400, False), (401, True), (403, True), (404, True), (302, False)])
def test_what_will_not_pass_is_not_retried(serve, status, permanent):
    server = serve(reply({"error": "no"}, status, Location="http://127.0.0.1:9/elsewhere"))
    with pytest.raises(EndpointError, match=f"HTTP {status}") as error:
        asked(server)
    assert error.value.permanent is permanent
    assert len(server.requests) == 1


def test_the_key_is_sent_and_never_told(serve, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    server = serve(reply({"error": "bad key sk-very-secret"}, 401))
    with pytest.raises(EndpointError) as error:
        asked(server, key_variable="JUDGE_KEY")
    assert server.requests[0][2] == "Bearer sk-very-secret"
    assert "secret" not in str(error.value)
    endpoint = Endpoint(url=server.url, model="m", key_variable="JUDGE_KEY")
    assert "secret" not in json.dumps(endpoint.describe()) + repr(endpoint)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"url": "ftp://host"}, "http or https"),
        ({"url": "http://[::1/v1"}, "http or https"),
        ({"url": "http://host:99999/v1"}, "http or https"),
        ({"url": "http://host:port/v1"}, "http or https"),
        ({"url": "http://host/v1\r\nX: y"}, "http or https"),
        ({"url": "http://höst/v1"}, "http or https"),
        ({"url": "http://user:pass@host/v1"}, "no user, password"),
        ({"url": "http://host/v1?key=1"}, "no user, password or query"),
        ({"model": " "}, "name of its model"),
        ({"attempts": 0}, "attempts must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"key_variable": "NO_SUCH_VARIABLE"}, "it is not set"),
    ],
)
def test_mistakes(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        Endpoint(**({"url": "http://host/v1", "model": "m"} | change))


def test_a_key_that_would_show_in_an_error_is_refused(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "two\nlines")
    with pytest.raises(ValueError, match="one line of ASCII; it holds something else"):
        Endpoint(url="http://host/v1", model="m", key_variable="JUDGE_KEY")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("{'pred': 'yes', 'score': 5}", (True, 5.0)),
        ('{"pred": "no", "score": 0}', (False, 0.0)),
        ("```json\n{'pred': 'Yes', 'score': 4.8}\n```", (True, 4.8)),
        ("Sure! {'pred': 'NO', 'score': '2'}", (False, 2.0)),
    ],
)
def test_verdicts_as_models_write_them(text, verdict):
    found = parse_verdict(text)
    assert (found.correct, found.score) == verdict


def test_many_attempts_wait_no_longer_than_the_longest():
    waits = []
    with pytest.raises(EndpointError, match="asked 1200 times"):
        Endpoint(url="http://127.0.0.1:9/v1", model="m", attempts=1200).complete([], str, waits.append)
    assert max(waits) <= 120


@pytest.mark.parametrize("status", [400, 429, 200])
def test_a_server_s_words_are_one_short_line_that_steers_no_terminal(serve, monkeypatch, status):
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    words = "sk-very-secret\x1b[2J\x9b\u202e\r\nforged: line\x07" + "long " * 1000
    with pytest.raises(EndpointError) as error:
        asked(serve(reply(words.encode(), status)), key_variable="JUDGE_KEY")
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 450
    assert "very-secret" not in message


def open_items(count):
    return [
        Item(id=str(n), video="v.mp4", question="What?", options=(), right=None, answers=("cat",)) for n in range(count)
    ]


def open_rows(count):
    return [{"item": n, "setting": "none", "prediction": "cat"} for n in range(count)]


def test_a_judge_that_never_answers_is_given_up(serve):
    """Not every one of thousands of answers waits for as long as a judge says."""
    server = serve(reply({}, 503))
    endpoint = Endpoint(url=server.url, model="m", attempts=1, parallel=4)
    found = list(judge_rows(endpoint, open_rows(60), open_items(60)))
    assert len(found) == 60
    assert all("HTTP 503" in row["unjudged"] for row in found)
    assert MAX_FAILURES_IN_A_ROW <= len(server.requests) < MAX_FAILURES_IN_A_ROW + 4
    assert sum("not asked, after 24 answers in a row" in row["unjudged"] for row in found) == 60 - len(server.requests)


def test_failures_now_and_then_do_not_end_the_judging(serve):
    script = [says("no idea") if n % 3 else YES for n in range(60)]
    endpoint = Endpoint(url=serve(*script).url, model="m", attempts=1, parallel=1)
    found = list(judge_rows(endpoint, open_rows(60), open_items(60)))
    assert sum("correct" in row for row in found) == 20


def test_an_interrupt_does_not_wait_for_a_judge_that_says_to_wait(serve):
    server = serve(YES, reply({}, 429, Retry_After="100"))
    endpoint = Endpoint(url=server.url, model="m", attempts=2, parallel=2)
    began = time.monotonic()
    judging = judge_rows(endpoint, open_rows(6), open_items(6))
    assert next(judging)["correct"]
    judging.close()
    assert time.monotonic() - began < 10
