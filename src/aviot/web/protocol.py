"""HTTP/1.1 for uvicorn, with answers to malformed requests that arrive and that browsers cannot misuse."""

import asyncio
import json
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from aviot.web.gate import DRAINED_BYTES, DRAINED_SECONDS, SECURITY

SENTENCE = "this is not a request of HTTP/1.1"


class Protocol(H11Protocol):
    """One connection. After a malformed request it is answered once, and what follows is dropped."""

    _dropped: int | None = None  # bytes since the connection's last answer

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self._dropped is None:
            super().data_received(data)
            return
        self._dropped += len(data)
        if self._dropped > DRAINED_BYTES:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed, and read on for a while: else the client might not get the answer."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._dropped = 0
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in _answer(getattr(sys.exception(), "error_status_hint", HTTPStatus.BAD_REQUEST)):
                self.transport.write(self.conn.send(event) or b"")
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self.flow.resume_reading()
        asyncio.get_running_loop().call_later(DRAINED_SECONDS, self.transport.close)


def _answer(hint: int) -> list[Any]:
    status = HTTPStatus(hint)
    error = {"message": f"{SENTENCE}: {status.phrase.lower()}", "type": "invalid_request_error", "param": None}
    body = json.dumps({"error": error | {"code": status.name.lower()}}).encode()
    own = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    headers = [(name.encode(), value.encode()) for name, value in (SECURITY | own).items()]
    start = h11.Response(status_code=int(status), headers=headers, reason=status.phrase.encode())
    return [start, h11.Data(data=body), h11.EndOfMessage()]
