"""Access to the app: addresses, names, origins, the token, and the number of connections."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

import pytest
from serving import (
    LOCAL,
    chat,
    collected,
    cookie_of,
    eventually,
    made,
    post,
    raw,
    report_of,
    request,
    serving,
    statuses,
    upload,
)
from showing import CHECKPOINT, clip
from test_explain_app import written
from typer.testing import CliRunner

from aviot.app import uploads
from aviot.cli import app as cli
from aviot.web import body as bodies
from aviot.web import server
from aviot.web.access import EXPOSED, Access, AccessError, resolve

PLAIN = {"Content_Type": "application/octet-stream"}


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.fixture
def app(loaded):
    with serving(loaded) as running:
        yield running


@pytest.fixture
def exposed(loaded):
    with serving(loaded, "0.0.0.0") as running:
        yield running


def allowed(access, host, *origins):
    try:
        access.check([host], origins)
    except AccessError:
        return False
    return True


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_on_loopback_hosts_are_this_machines_with_the_right_port(address):
    access = Access.of(address, 8765)
    assert access.token is None
    for host in ("127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "127.3.2.1:8765", "[::1]:8765"):
        assert allowed(access, host), host
    for host in (
        *(
            "",
            "evil",
            "evil:8765",
            "127.0.0.1",
            "localhost",
            "localhost:8766",
            "127.0.0.1.evil:8765",
            "localhost.:8765",
        ),
        *("0.0.0.0:8765", "192.168.1.2:8765", "[::]:8765", "::1:8765", "[::1:8765", "evil@localhost:8765"),
        *(
            "localhost:8765/",
            "localhost:8765 ",
            "localhost:+8765",
            socket.gethostname() + ":8765",
        ),
    ):
        assert not allowed(access, host), host
    assert allowed(Access.of(address, 80), "localhost")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.2", "fe80::1%eth0"])
def test_elsewhere_hosts_are_addresses_or_own_names(address):
    """Rebinding takes a name; what is not of this machine must be allowed by name."""
    access = Access.of(address, 8765)
    assert len(access.token) >= 43
    for host in ("192.168.1.2:8765", "10.0.0.1:80", "[fd00::1]:8765", "[fe80::1%25eth0]:8765", "localhost:8765"):
        assert allowed(access, host), host
    assert allowed(access, f"{socket.gethostname()}:8765")
    for host in ("evil:8765", "evil", "192.168.1.2.evil:8765", f"{socket.gethostname()}:80", "300.1.1.1:8765"):
        assert not allowed(access, host), host


def test_names_are_allowed_with_a_port_or_any():
    access = Access.of("127.0.0.1", 8765, ["Video.example", "localhost:9000"])
    for host in ("video.example", "video.example:443", "VIDEO.example:1", "localhost:9000", "localhost:8765"):
        assert allowed(access, host), host
    for host in ("localhost:9001", "a.video.example", "video.example.evil"):
        assert not allowed(access, host), host
    for name in ("*", "http://a", "a/b", "", "a b", "a:b"):
        with pytest.raises(ValueError, match="is not a host"):
            Access.of("127.0.0.1", 8765, [name])


def test_origins_are_the_page_s_own():
    access = Access.of("127.0.0.1", 8765)
    assert allowed(access, "localhost:8765", "http://localhost:8765")
    for origin in ("null", "", "http://evil", "http://localhost", "http://127.0.0.1:8765", "http://[", "file://"):
        assert not allowed(access, "localhost:8765", origin), origin
    assert not allowed(access, "localhost:8765", "http://localhost:8765", "http://evil")
    with pytest.raises(AccessError):
        access.check(["localhost:8765", "localhost:8765"], [])
    with pytest.raises(AccessError):
        access.check([], [])


@pytest.mark.parametrize(
    ("address", "url"),
    [("127.0.0.1", "http://127.0.0.1:1/"), ("::1", "http://[::1]:1/"), ("fe80::1%e", "http://[fe80::1%25e]:1/?token=")],
)
def test_the_address_to_open(address, url):
    assert Access.of(address, 1).url.startswith(url)


def test_the_address_of_all_interfaces_can_be_opened():
    for address in ("0.0.0.0", "::"):
        url = Access.of(address, 1).url
        assert "?token=" in url
        assert "//0.0.0.0" not in url
        assert "//[::]" not in url


@pytest.mark.parametrize("host", ["", " ", "[]"])
def test_an_empty_host_is_refused(host):
    with pytest.raises(ValueError, match="the host is empty"):
        resolve(host, 1)
    done = CliRunner().invoke(cli, ["app", "--host", host, "--model", str(CHECKPOINT)])
    assert (done.exit_code, "the host is empty" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "a" * 70 + ".b"], "is neither a host name nor an address"),
        (["--host", "300.0.0.1"], "cannot serve at 300.0.0.1:8765"),
        (["--allow-host", "http://a"], "'http://a' is not a host"),
    ],
)
def test_addresses_that_are_mistaken(arguments, sentence):
    done = CliRunner().invoke(cli, ["app", *arguments, "--model", str(CHECKPOINT)], env={"COLUMNS": "200"})
    assert (done.exit_code, sentence in done.stderr) == (2, True), done.stderr


def test_without_the_token_nothing_is_answered(exposed):
    port = exposed.port
    for cookie in (
        "",
        f"aviot-{port}=",
        f"aviot-{port}=wrong",
        "other=1",
        f"aviot-{port}=é; aviot-1={exposed.access.token}",
    ):
        for method, path in (
            ("GET", "/"),
            ("GET", "/status"),
            ("GET", "/?token=wrong"),
            ("GET", "/?token="),
            ("GET", "/x"),
            ("GET", "/health"),
            ("GET", "/docs"),
            ("GET", "/explain/x"),
            ("GET", "/samples/0"),
        ):
            status, headers, body = request(exposed, method, path, Cookie=cookie.encode())
            assert (status, "Set-Cookie" in headers) == (403, False)
            assert b"needs a token" in body
        for path in ("/videos", "/v1/chat/completions", "/v1/streams", f"/videos?token={exposed.access.token}"):
            assert post(exposed, path, b"{}", Cookie=cookie.encode(), **PLAIN)[0] == 403
    assert exposed.encoded == 0


def test_the_token_is_kept_as_a_cookie_and_leaves_the_address(exposed, tmp_path):
    status, headers, body = request(exposed, "GET", f"/?token={exposed.access.token}")
    assert (status, headers["Location"], body) == (303, "/", b"")
    value, *flags = headers["Set-Cookie"].split("; ")
    assert set(flags) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert headers["Referrer-Policy"] == "no-referrer"
    for _ in range(2):
        assert request(exposed, "GET", "/", Cookie=f"a=b; {value}")[0] == 200
    found = upload(exposed, written(tmp_path / "a.mp4", clip(3)).read_bytes(), Cookie=value)
    assert (found[0], found[1]["frames"]) == (200, 3)
    assert request(exposed, "GET", "/", Cookie=value, Host="evil")[0] == 403
    assert request(exposed, "GET", "/", Cookie=value, Origin="http://evil")[0] == 403
    assert post(exposed, "/videos", b"{}", Cookie=value, Origin="http://evil:1", **PLAIN)[0] == 403


def test_a_person_without_the_token_reads_a_sentence(exposed):
    status, headers, body = request(exposed, "GET", "/", Accept="text/html,*/*")
    assert (status, headers.get_content_type()) == (403, "text/html")
    assert b"<p>this app needs a token; open the whole address" in body


@needs_ipv6
def test_ipv6(loaded):
    with serving(loaded, "::1") as app:
        port = app.port
        assert app.url == f"http://[::1]:{port}/"
        assert request(app, "GET", "/status", host="::1")[0] == 200
        assert request(app, "GET", "/status", host="::1", Host=f"[::1]:{port}")[0] == 200
        assert request(app, "GET", "/status", host="::1", Host=f"[::2]:{port}")[0] == 403
    with serving(loaded, "::") as app:
        for host in ("::1", LOCAL):
            assert request(app, "GET", "/status", host=host)[0] == 403
            assert request(app, "GET", "/status", host=host, Cookie=cookie_of(app))[0] == 200


def test_every_reply_has_the_headers_that_browsers_obey(app):
    replies = [
        request(app, "GET", "/"),
        request(app, "GET", "/nothing"),
        request(app, "GET", "/", Host="evil"),
        request(app, "PUT", "/", b"x"),
        request(app, "POST", "/v1/chat/completions", b"{}", Content_Type="application/json"),
    ]
    assert [reply[0] for reply in replies] == [200, 404, 403, 405, 400]
    for _, headers, _ in replies:
        policy = headers["Content-Security-Policy"]
        assert "unsafe-eval" not in policy
        assert "script-src 'sha256-" in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"


def test_a_hundred_connections_at_once_are_answered(app):
    """Open every connection before the first request; none may be reset."""
    line = f"GET /status HTTP/1.1\r\nHost: {LOCAL}:{app.port}\r\n\r\n".encode()
    connections = [socket.create_connection((LOCAL, app.port), timeout=30) for _ in range(100)]
    for connection in connections:
        connection.sendall(line)
    replies = [connection.recv(100) for connection in connections]
    for connection in connections:
        connection.close()
    assert [reply[:15] for reply in replies] == [b"HTTP/1.1 200 OK"] * 100


def test_connections_are_bounded_and_slow_ones_make_room(loaded, monkeypatch):
    """Idle, or sending a byte now and then, they end after a while; whoever comes before that is refused."""
    monkeypatch.setattr(server, "CONNECTIONS", 3)
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.6)
    with serving(loaded) as app:
        address = (LOCAL, app.port)
        slow = [socket.create_connection(address, timeout=10) for _ in range(3)]
        began = time.monotonic()

        def drip():
            try:
                while True:
                    slow[0].sendall(b"G")
                    time.sleep(0.1)
            except OSError:
                return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert request(app, "GET", "/status")[0] == 503
        assert [connection.recv(1) for connection in slow[1:]] == [b"", b""]
        dripping.join(10)
        assert not dripping.is_alive()
        assert 0.3 < time.monotonic() - began < 5
        assert request(app, "GET", "/status")[0] == 200
        for connection in slow:
            connection.close()


@pytest.mark.parametrize("path", ["/videos", "/v1/chat/completions"])
def test_a_body_that_drips_is_given_up(app, monkeypatch, path):
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.3)
    kind = "application/octet-stream" if path == "/videos" else "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: {LOCAL}:{app.port}\r\nContent-Type: {kind}\r\n"
    with socket.create_connection((LOCAL, app.port), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode())
        began = time.monotonic()
        connection.settimeout(0.05)
        while time.monotonic() - began < 8:
            try:
                connection.sendall(b" ")
                if connection.recv(2**16) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() - began < 5


def received(folder):
    """Return the names of the uploads below a folder, from which others may be deleted meanwhile."""
    return [name for _, _, names in os.walk(folder) for name in names if name.startswith("video")]


@contextmanager
def partial_uploads(app, count, folder):
    """Hold uploads of which only the beginning arrives."""
    head = f"{VIDEO.format(port=app.port)}Content-Length: 1900000\r\n\r\n".encode()
    held = [socket.create_connection((LOCAL, app.port), timeout=10) for _ in range(count)]
    try:
        for connection in held:
            connection.sendall(head + bytes(1000))
        assert eventually(lambda: len(received(folder)) == count)
        yield
    finally:
        for connection in held:
            connection.close()


def test_few_uploads_are_received_at_once(loaded, monkeypatch, tmp_path):
    monkeypatch.setattr(uploads, "UPLOAD_WAIT", 0.05)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serving(loaded) as app:
        with partial_uploads(app, uploads.UPLOADS, tmp_path):
            status, said = upload(app, b"x")
            assert (status, "too many videos" in said["error"]) == (503, True)
        assert eventually(lambda: not received(tmp_path))  # of clients that left, nothing stays
        assert upload(app, b"x")[0] == 422
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said(app, monkeypatch):
    async def full(self, file, receive):
        with open("/dev/full", "wb") as file:
            file.write(b"x")

    monkeypatch.setattr(uploads.Uploads, "_written", full)
    status, said = upload(app, b"x")
    assert (status, said["error"]) == (507, "the disk of the app's machine is full; make room and try again")


HOST = "Host: 127.0.0.1:{port}\r\n"
VIDEO = "POST /videos HTTP/1.1\r\n" + HOST + "Content-Type: application/octet-stream\r\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("GET /\r\n\r\n", 400),  # HTTP/0.9
        ("GET / HTTP/1.0\r\n\r\n", 403),
        ("GET / HTTP/9.9\r\n" + HOST + "\r\n", 505),
        ("\x00\x01\x02\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\r\n", 400),  # TLS
        ("TRACE / HTTP/1.1\r\n" + HOST + "\r\n", 405),
        ("GET http://evil/ HTTP/1.1\r\n" + HOST + "\r\n", 400),
        ("GET /../../etc/passwd HTTP/1.1\r\n" + HOST + "\r\n", 404),
        ("GET /%2e%2e/%00 HTTP/1.1\r\n" + HOST + "\r\n", 404),
        ("GET /" + "a" * 70_000 + " HTTP/1.1\r\n" + HOST + "\r\n", 414),
        ("GET / HTTP/1.1\r\n" + HOST + "X: " + "a" * 70_000 + "\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\n" + HOST + "X: a\r\n" * 200 + "\r\n", 431),
        ("GET / HTTP/1.1\r\n" + HOST + ("X: " + "a" * 60_000 + "\r\n") * 20 + "\r\n", 431),
        ("GET / HTTP/1.1\r\n" + HOST * 2 + "\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : evil\r\n" + HOST + "\r\n", 400),
        ("GET / HTTP/1.1\r\n" + HOST + "Content-Length: 5\r\n\r\nGET /", 400),
        ("GET / HTTP/1.1\r\n" + HOST + "Range: bytes=0-99\r\nConnection: close\r\n\r\n", 200),
        (VIDEO + "Content-Length: -5\r\n\r\nabc", 400),
        (VIDEO + "Content-Length: +5\r\n\r\nabcde", 400),
        (VIDEO + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (VIDEO + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", 411),
        (VIDEO + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", 411),
        (VIDEO + "Transfer-Encoding: gzip\r\n\r\nabc", 501),
        (VIDEO + "Content-Length: 99999999\r\n\r\n" + "x" * 3_000_000, 413),  # the refusal arrives all the same
        (VIDEO + "Content-Length: 3\r\nX-File-Name: %00%1b../..\r\n\r\nabc", 422),
    ],
)
def test_odd_requests_get_one_answer(app, text, status):
    """Never parse the body of a refused request as another request."""
    reply = raw(app, text.format(port=app.port).encode("latin-1"))
    assert statuses(reply) in ([status], [431] if status == 414 else [status])  # of a head that comes in parts
    assert b"Traceback" not in reply
    assert request(app, "GET", "/status")[0] == 200


def test_requests_in_one_go_are_answered_in_order(app):
    one = f"GET /status HTTP/1.1\r\n{HOST.format(port=app.port)}\r\n".encode()
    assert raw(app, one * 3).count(b'{"encoded":0}') == 3


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def number(request):
    """Set a signal's default handler: nohup ignores SIGHUP, and the server does not handle ignored signals."""
    outside = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, outside)


def test_a_signal_ends_the_server_and_deletes_a_partial_upload(loaded, number, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = signal.getsignal(number)
    with collected() as said:
        app = made(loaded)
        address = app.listener.getsockname()[:2]
        partial = socket.create_connection(address, timeout=10)

        def begin_upload():
            head = VIDEO.format(port=address[1])
            partial.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + bytes(200_000))
            while not received(tmp_path):
                time.sleep(0.01)
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=begin_upload)
        began = time.monotonic()
        app.run(thread.start)
        thread.join()
        assert time.monotonic() - began < 15
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) is before
    partial.close()
    assert said == []


def sent(port, data):
    """Return the body of the reply to a request."""
    with socket.create_connection((LOCAL, port), timeout=60) as connection:
        connection.sendall(data)
        whole = b"".join(iter(lambda: connection.recv(2**16), b""))
    return whole.partition(b"\r\n\r\n")[2]


def test_sigterm_ends_the_command_and_cleans_up(tmp_path):
    """End while one upload is partial and another video's question is being answered and explained."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "aviot", "app", "--host", "0.0.0.0", "--port", "0", "--model", str(CHECKPOINT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        url = process.stdout.readline().strip()
        port, token = int(url.split(":")[2].split("/")[0]), url.partition("?token=")[2]
        cookie = f"Cookie: aviot-{port}={token}\r\n"
        head = VIDEO.format(port=port) + cookie
        whole = written(tmp_path / "a.mp4", clip(60)).read_bytes()
        (tmp_path / "a.mp4").unlink()
        closing = "Connection: close\r\n"
        found = json.loads(sent(port, f"{head}{closing}Content-Length: {len(whole)}\r\n\r\n".encode() + whole))
        parts = [{"type": "video_url", "video_url": {"url": f"upload:{found['video']}"}}, {"type": "text", "text": "a"}]
        asked = {"model": "checkpoint", "messages": [{"role": "user", "content": parts}], "aviot": {"budget": 1.5}}
        text = json.dumps(asked)
        post = f"POST /v1/chat/completions HTTP/1.1\r\n{HOST.format(port=port)}{cookie}{closing}"
        post += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        reply = json.loads(sent(port, post.encode()))
        get = f"GET {reply['aviot']['explain']}/data HTTP/1.1\r\n{HOST.format(port=port)}{cookie}{closing}\r\n"
        for request in (get, post):
            threading.Thread(target=sent, args=(port, request.encode()), daemon=True).start()
        head += "Content-Length: 1000000\r\n\r\n"
        with socket.create_connection((LOCAL, port), timeout=10) as partial:
            partial.sendall(head.encode() + bytes(300_000))
            while not received(tmp_path):
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert EXPOSED in errors
    assert errors.endswith("ended\n")
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_in_a_browser_the_token_leaves_the_address_bar(exposed, tab, tmp_path):
    base = f"http://{LOCAL}:{exposed.port}/"
    shown = tab()
    shown.page.goto(f"{base}?token={exposed.access.token}")
    assert shown.page.url == base
    shown.page.set_input_files("#file", str(written(tmp_path / "a.mp4", clip(4))))
    shown.page.wait_for_selector("#status:has-text('4 frames')")
    assert shown.page.evaluate("document.cookie") == ""
    assert shown.complaints == []
    other = tab()
    assert other.page.goto(base).status == 403
    assert "needs a token" in other.text("main")


def test_in_a_browser_a_link_of_another_site_works_after_one_click(exposed, app, tab):
    """Work around strict cookies, which are not sent on a redirect that another site started."""
    base = f"http://{LOCAL}:{exposed.port}/"
    page = tab().page
    page.goto(app.url.replace(LOCAL, "localhost"))
    page.evaluate("url => { const link = document.createElement('a'); link.href = url; document.body.append(link); "
                  "link.click(); }", f"{base}?token={exposed.access.token}")  # fmt: skip
    page.wait_for_url(base)
    if page.locator("#form").count() == 0:
        page.click("a")
    page.wait_for_selector("#form")


def test_questions_are_asked_with_the_cookie_alone(exposed, tmp_path):
    value = cookie_of(exposed)
    number = upload(exposed, written(tmp_path / "a.mp4", clip(4)).read_bytes(), Cookie=value)[1]["video"]
    status, reply = chat(exposed, number, "Why?", 2, cookie=value)
    assert status == 200
    assert chat(exposed, number, "Why?", 2)[0] == 403
    assert report_of(exposed, reply, Cookie=value)[0] == 200
    assert report_of(exposed, reply)[0] == 403
