"""Videos of other machines: fetched from public addresses alone, bounded, and through no back door."""

import asyncio
import gzip
import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from asking import LOCAL, asked, running

from aviot.serve import remote
from aviot.serve.remote import Fetcher, is_public
from aviot.web.body import BodyRoom
from aviot.web.refusal import Refused

PRIVATE = (
    *("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("255.255.255.255", "224.0.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1"),
    *("ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("fec0::1", "2001:db8::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe"),
)


def test_private_addresses_are_not_public():
    assert [one for one in PRIVATE if is_public(ipaddress.ip_address(one))] == []
    for one in ("93.184.215.14", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        assert is_public(ipaddress.ip_address(one)), one


class Elsewhere(BaseHTTPRequestHandler):
    """Another machine: `/video` has one, other paths try something."""

    def do_GET(self):
        server = self.server
        server.seen.append((self.path, self.headers["Host"]))
        body = server.video
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", server.targets[self.path])
            body = b""
        elif self.path == "/missing":
            self.send_response(404)
        else:
            self.send_response(200)
        if self.path == "/gzip":
            body = gzip.compress(bytes(10_000_000))
            self.send_header("Content-Encoding", "gzip")
        if self.path == "/endless":
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(100_000))
            except OSError:
                return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def elsewhere(folder):
    server = ThreadingHTTPServer((LOCAL, 0), Elsewhere)
    server.daemon_threads = True
    server.video, server.seen = (folder / "2.mp4").read_bytes(), []
    port = server.server_address[1]
    server.targets = {
        "/to/video": f"http://localhost:{port}/video",
        "/to/inside": f"http://127.0.0.2:{port}/video",
        "/to/itself": "/to/itself",
        "/to/file": "file:///etc/passwd",
    }
    server.url = f"http://localhost:{port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def allowed(monkeypatch):
    """Take one loopback address for a public one, and the rest of them for private ones."""
    monkeypatch.setattr(remote, "is_public", lambda address: str(address) in (LOCAL, "::1"))


def fetched(url, most=1_000_000):
    with BodyRoom(most, most).reserved() as held:
        return asyncio.run(Fetcher(most).fetch(url, held)).data


def refusal(url, most=1_000_000):
    with pytest.raises(Refused) as caught:
        fetched(url, most)
    assert caught.value.status == 422
    return caught.value.sentence


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "169.254.169.254", "[::ffff:7f00:1]"]
)
def test_addresses_of_this_network_are_not_fetched(host, elsewhere):
    before = len(elsewhere.seen)
    sentence = refusal(f"http://{host}:{elsewhere.server_address[1]}/video")
    assert "does not belong to the public Internet" in sentence or "cannot be read" in sentence
    assert len(elsewhere.seen) == before


def test_a_public_video_is_fetched(elsewhere, allowed):
    assert fetched(f"{elsewhere.url}/video") == elsewhere.video
    assert elsewhere.seen[-1] == ("/video", elsewhere.url.removeprefix("http://"))  # its own name, though by number
    assert fetched(f"{elsewhere.url}/to/video") == elsewhere.video


def test_redirects_lead_to_no_other_machine(elsewhere, allowed):
    assert "does not belong to the public Internet" in refusal(f"{elsewhere.url}/to/inside")
    assert "redirected more than 3 times" in refusal(f"{elsewhere.url}/to/itself")
    assert "http://HOST" in refusal(f"{elsewhere.url}/to/file")


def test_what_is_fetched_is_bounded(elsewhere, allowed, monkeypatch):
    assert "more than 1 MB" in refusal(f"{elsewhere.url}/endless")
    assert "compressed data" in refusal(f"{elsewhere.url}/gzip")
    assert "status 404" in refusal(f"{elsewhere.url}/missing")
    assert "without a user name" in refusal(elsewhere.url.replace("http://", "http://a:b@"))
    with socket.socket() as silent:
        silent.bind((LOCAL, 0))
        silent.listen()
        monkeypatch.setattr(remote, "FETCH_SECONDS", 0.3)
        assert "did not answer within" in refusal(f"http://{LOCAL}:{silent.getsockname()[1]}/")


def test_a_name_is_resolved_once(elsewhere, allowed, monkeypatch):
    """A name server that answers with a public address first, and then with a private one, leads nowhere else."""
    answers = []

    async def resolve(self, host, port, **options):
        answers.append(LOCAL if not answers else "127.0.0.2")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[-1], port))]

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", resolve)
    url = elsewhere.url.replace("localhost", "rebinding.example")
    assert fetched(f"{url}/video") == elsewhere.video
    assert answers == [LOCAL]


def test_requests_name_remote_videos_where_that_is_allowed(lm, elsewhere, allowed):
    with running(lm, allow_remote=True) as server:
        assert server.post(asked(f"{elsewhere.url}/video"))[0] == 200
        status, reply = server.post(asked("http://127.0.0.2/video"))
        assert (status, reply["error"]["code"]) == (422, "address_not_read")
