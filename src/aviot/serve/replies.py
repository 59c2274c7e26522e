"""Replies in the OpenAI protocol: completions, their chunks, and errors."""

import time
from dataclasses import asdict, dataclass, field
from secrets import token_hex
from typing import Any

from aviot.serve.chat import Chat
from aviot.serve.events import Begun, Ended
from aviot.web.refusal import Refused

KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_body(refused: Refused) -> dict[str, Any]:
    """Return the body of a refusal."""
    status = int(refused.status)
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = refused.code or refused.status.name.lower()
    return {"error": {"message": refused.sentence, "type": kind, "param": refused.field, "code": code}}


@dataclass
class Reply:
    """The reply to one request, as a whole or in chunks."""

    chat: Chat
    model: str
    number: str = field(default_factory=lambda: f"chatcmpl-{token_hex(16)}")
    created: int = field(default_factory=lambda: int(time.time()))
    begun: Begun | None = None
    ended: Ended | None = None

    def completion(self, text: str) -> dict[str, Any]:
        """Return the whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return self._head("chat.completion") | {"choices": [choice], "usage": self.usage(), "aviot": self.about()}

    def first(self) -> dict[str, Any]:
        """Return the chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, text: str) -> dict[str, Any]:
        """Return a chunk with text."""
        return self._chunk({"content": text})

    def last(self) -> dict[str, Any]:
        """Return the chunk that says why the answer ended, and where its tokens came from."""
        return self._chunk({}, self._finish) | {"aviot": self.about()}

    def counts(self) -> dict[str, Any]:
        """Return the chunk with the usage, which has no choices."""
        return self._chunk({}) | {"choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """Return the numbers of tokens."""
        assert self.begun is not None
        assert self.ended is not None
        prompt, answer = self.ended.prompt_tokens, self.ended.tokens
        visual = {"before": self.begun.visual_before, "after": self.ended.visual_after}
        if self.ended.steps:
            visual["read"] = sum(step.tokens for step in self.ended.steps)
        total = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        return total | {"visual_tokens": visual}

    def about(self) -> dict[str, Any]:
        """Return how the video was compressed."""
        assert self.begun is not None
        assert self.ended is not None
        about: dict[str, Any] = {
            "method": self.chat.method,
            "budget": str(self.ended.budget),
            "frames": self.begun.frames,
        }
        if self.ended.steps:
            about |= {"steps": [asdict(step) for step in self.ended.steps], "reason": self.ended.reason}
        if self.ended.stream is None:
            about["explain"] = f"/explain/{self.number}"
        else:
            about["stream"] = self.ended.stream
        return about | ({} if self.ended.provenance is None else {"provenance": self.ended.provenance})

    @property
    def _finish(self) -> str:
        assert self.ended is not None
        return "stop" if self.ended.finish == "stop" else "length"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.number, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.chat.include_usage else {}  # the protocol has it in every chunk then
        return self._head("chat.completion.chunk") | {"choices": [choice]} | usage
