"""The decoder on a vLLM server behind an address: `vllm serve FOLDER --enable-prompt-embeds`.

The server takes prompt embeddings as base64 of a tensor that torch saved, and nothing else. Writing one is safe; this
package never loads such a file.
"""

import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import torch

from aviot.engine.addresses import check_address
from aviot.engine.base import EngineUnavailable
from aviot.engine.outside import FINISHED, OutsideEngine
from aviot.engine.prompt_rows import PromptRow
from aviot.engine.vllm_positions import POSITIONS, as_text, cache_salt
from aviot.utils.printing import one_line

CONNECT_SECONDS, SILENT_SECONDS, ANSWER_SECONDS = 5.0, 120.0, 900.0
"""Longest time to connect, between two parts of an answer, and for a whole answer."""

ATTEMPTS, BACKOFF_SECONDS = 4, 0.5
"""Requests for one answer while none of its tokens has come, and the first wait between two, which doubles."""

PROBE_SECONDS = 5.0  # between two checks of whether the server is there
REFUSED = frozenset({400, 413, 422})  # the request is to blame
MAX_REASON = 400  # characters of a server's message
MAX_CONNECTIONS = 1024


class _Failed(Exception):
    """Raised if a request failed in a way that the next one may not; `forever` if it surely will."""

    def __init__(self, reason: str, *, forever: bool = False) -> None:
        super().__init__(reason)
        self.forever = forever


class RemoteEngine(OutsideEngine):
    """An engine that sends prompts to a vLLM server, which has the decoder that `save_decoder` wrote.

    `key` is the server's API key. Nothing is sent before the first question; a server that is not there yet, or goes
    away and returns, is asked again.
    """

    name = "remote"

    def __init__(self, model: Any, tokenizer: Any, address: str, *, key: str | None = None) -> None:
        self.address = check_address(address)
        super().__init__(model, tokenizer)
        self._client = httpx2.AsyncClient(
            base_url=self.address,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS),
        )
        self._served: str | None = None  # the model's name there
        self._problem: str | None = None
        self._probed = 0.0

    async def decode(self, row: PromptRow, max_new_tokens: int) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of the greedy answer to one prompt; failures before the first token are tried again."""
        body = await asyncio.to_thread(_body, row, max_new_tokens, sorted(self.ends))
        ends = time.monotonic() + ANSWER_SECONDS
        for attempt in range(ATTEMPTS):
            started = False
            try:
                async for tokens in self._tokens(body):
                    started = True
                    yield tokens
                    if time.monotonic() > ends:
                        raise _Failed(f"an answer took longer than {ANSWER_SECONDS:g} s", forever=True)
            except (_Failed, httpx2.TransportError) as error:
                self._problem = self._sentence(error)
                if started or attempt == ATTEMPTS - 1 or getattr(error, "forever", False):
                    raise EngineUnavailable(self._problem) from error
                await asyncio.sleep(BACKOFF_SECONDS * 2**attempt)
            else:
                self._problem = None
                return

    def problem(self) -> str | None:
        """Return why the server could not be reached last time; it is tried again now and then."""
        if time.monotonic() > self._probed + PROBE_SECONDS and not self._closed:
            self._probed = time.monotonic()
            asyncio.run_coroutine_threadsafe(self._probe(), self._loop)
        return self._problem

    async def release(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _probe(self) -> None:
        try:
            reply = await self._client.get("/health", timeout=CONNECT_SECONDS)
            self._problem = None if reply.is_success else self._sentence(_Failed(f"status {reply.status_code}"))
        except httpx2.TransportError as error:
            self._problem = self._sentence(error)

    async def _tokens(self, body: dict[str, Any]) -> AsyncGenerator[tuple[int, ...]]:
        """Yield the tokens of one attempt."""
        content = json.dumps(body | {"model": await self._model()}).encode()
        headers = {"content-type": "application/json"}
        async with self._client.stream("POST", "/v1/completions", content=content, headers=headers) as reply:
            if not reply.is_success:
                await self._refuse(reply)
            finished = False
            async for line in reply.aiter_lines():
                if not line.startswith("data:") or line[5:].strip() == "[DONE]":
                    continue
                tokens, last = _chunk(line[5:])
                finished = finished or last
                if tokens:
                    yield tokens
            if not finished:
                raise _Failed("the answer broke off")

    async def _model(self) -> str:
        """Return the served model's name, which is asked for once."""
        if self._served is None:
            reply = await self._client.get("/v1/models", timeout=CONNECT_SECONDS)
            if not reply.is_success:
                await self._refuse(reply)
            try:
                self._served = str(reply.json()["data"][0]["id"])
            except (ValueError, LookupError, TypeError) as error:
                raise _Failed("it lists no model, and is not a vLLM server", forever=True) from error
        return self._served

    async def _refuse(self, reply: httpx2.Response) -> None:
        """Raise ValueError if the request is to blame for a reply's status, else _Failed."""
        said = one_line((await reply.aread())[: 4 * MAX_REASON].decode(errors="replace"))[:MAX_REASON]
        reason = f"status {reply.status_code}: {said}"
        if reply.status_code in REFUSED:
            raise ValueError(f"the vLLM server at {self.address} refuses the prompt, {reason}")
        if reply.status_code == 404:
            self._served = None  # it may serve another model by now
        if reply.status_code in (401, 403):
            raise _Failed(f"it refuses the API key, {reason}", forever=True)
        raise _Failed(reason)

    def _sentence(self, error: Exception) -> str:
        reason = str(error) or type(error).__name__
        return f"the vLLM server at {self.address} does not answer ({reason}); start it, or wait until it has started"


def _body(row: PromptRow, max_new_tokens: int, ends: list[int]) -> dict[str, Any]:
    """Return a completion request but for the model's name."""
    saved = io.BytesIO()
    torch.save(row.embeds.clone(), saved)  # a view would bring its whole storage along
    body = {
        "prompt_embeds": base64.b64encode(saved.getvalue()).decode(),
        "max_tokens": max_new_tokens,
        "temperature": 0,
        "stop_token_ids": ends,
        "stream": True,
        "return_token_ids": True,
    }
    if row.positions is None:
        return body
    positions = as_text(row.positions)
    return body | {"vllm_xargs": {POSITIONS: positions}, "cache_salt": cache_salt(positions)}


def _chunk(text: str) -> tuple[tuple[int, ...], bool]:
    """Return a chunk's tokens, and whether it is the last with any."""
    try:
        chunk = json.loads(text)
        if "error" in chunk:
            raise _Failed(one_line(str(chunk["error"].get("message", chunk["error"])))[:MAX_REASON])
        choices = chunk["choices"]
        if not choices:
            return (), False
        tokens = tuple(int(token) for token in choices[0]["token_ids"] or ())
        finish = choices[0]["finish_reason"]
        if finish not in (None, *FINISHED):
            raise _Failed(f"it ended the answer early: {one_line(str(finish))[:MAX_REASON]}")
        return tokens, finish is not None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _Failed("its answer has no token ids; vLLM 0.11 or newer sends them", forever=True) from error
