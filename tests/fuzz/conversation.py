"""A client that sends bytes to a server on loopback, well-formed or not, and checks what comes back."""

import base64
import re
import socket
import struct
from typing import Any

from fuzz.target import Broken, require

PORT = b"@PORT@"
"""Stands for the server's port, which is not known when a case is written."""

PATIENCE, QUIET = 20.0, 0.2
ENDS = ("read", "read", "read", "read", "close", "reset", "pieces")
"""What a client does after its request: read the answer, close, reset; or send the beginning in pieces."""

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
Exchange = dict[str, Any]


def exchange_of(
    data: bytes, *, end: str = "read", statuses: list[int] | None = None, foreign: bool = False
) -> Exchange:
    """Return bytes to send, what the client then does, and what the answer must be if that is known."""
    return {"data": base64.b64encode(data).decode(), "end": end, "statuses": statuses, "foreign": foreign}


def converse(port: int, exchange: Exchange) -> int:
    """Send bytes and return the status of the first answer, 0 where there is none; raise Broken for a wrong one."""
    data = base64.b64decode(exchange["data"]).replace(PORT, str(port).encode())
    answer = _talk(port, data, exchange["end"])
    if not answer or exchange["end"] in ("close", "reset"):
        require(not exchange["statuses"], "a sound request got no answer")
        return 0
    match = re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(.*?)\r\n\r\n", answer, re.S)
    asked = f"{data[:300]!r}"
    require(b"Traceback" not in answer, f"a traceback in the answer to {asked}")
    if match is None:  # as of HTTP 0.9, for what does not even begin like a request of 1.0
        require(not exchange["statuses"] and not answer.startswith(b"HTTP"), f"{answer[:200]!r} to {asked}")
        return 0
    status, body = int(match[1]), answer[match.end() :]
    require(status < 500 or status in (501, 505, 507), f"status {status}, {body[:200]!r}, to {asked}")
    require(not exchange["foreign"] or status >= 400, f"status {status} to a foreign host or origin: {asked}")
    require(not exchange["statuses"] or status in exchange["statuses"], f"status {status}, {body[:200]!r}, to {asked}")
    length = _LENGTH.search(match[0])
    is_head = data.startswith(b"HEAD")
    require(length is None or is_head or len(body) >= int(length[1]), f"{len(body)} bytes of {length}: {asked}")
    return status


def _is_complete(answer: bytes) -> bool:
    """Return whether the first response has arrived as a whole; the connection may stay open for another request."""
    head, parted, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r\n")
    return bool(parted) and (body.endswith(b"0\r\n\r\n") if length is None else len(body) >= int(length[1]))


def _talk(port: int, data: bytes, end: str) -> bytes:
    """Send bytes, then read the answer, close or reset; a server may close first."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        try:
            if end == "pieces":
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for start in range(0, min(len(data), 40), 8):
                    client.sendall(data[start : start + 8])
                data = data[40:]
            client.sendall(data)
            if end == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end in ("reset", "close"):
                return b""
        except (BrokenPipeError, ConnectionResetError):
            pass
        except OSError as error:
            require(error.errno == 107, f"{error!r}")  # not connected any more
        try:
            while piece := client.recv(2**16):
                answer += piece
                client.settimeout(QUIET if _is_complete(answer) else PATIENCE)
        except ConnectionResetError:
            pass
        except TimeoutError:
            if _is_complete(answer):
                return answer
            raise Broken(f"no answer, and no end, in {PATIENCE:.0f} s to {data[:200]!r}") from None
    return answer
