"""Continuous batches of transformers' models: requests join and leave a running batch between two tokens."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from aviot.engine.base import Cancel, DecoderInput, Deliver, EngineUnavailable, Finish, Piece, Reducing
from aviot.engine.guard import not_finite
from aviot.engine.row_attention import use_row_attention
from aviot.engine.row_cache import RowCache
from aviot.engine.text import AnswerText
from aviot.engine.transformers import TransformersEngine, largest_probability

PLACES = 32
CACHE_SHARE = 0.5  # of a GPU's free memory, for the batch's cache
CACHE_BYTES = 4 * 2**30  # of other devices


@dataclass(eq=False)
class _Request:
    """One answer under way; in the batch, `token` is what it decodes next, at `position` on each axis."""

    inputs: DecoderInput
    limit: int
    deliver: Deliver
    text: AnswerText
    token: int = 0
    position: list[int] = field(default_factory=list)
    cancelled: bool = False
    over: bool = False

    @property
    def longest(self) -> int:
        """The largest number of tokens that it may have in the cache."""
        return self.inputs.length + self.limit

    def end(self, last: Piece | Exception) -> None:
        """Deliver the last piece, once."""
        if not self.over:
            self.over = True
            self.deliver(last)


@dataclass
class _Batch:
    """The requests in the batch, row by row of the cache."""

    cache: RowCache
    requests: list[_Request] = field(default_factory=list)

    def remove(self, row: int) -> None:
        """Remove a row; the last one takes its place."""
        self.cache.leave(row)
        self.requests[row] = self.requests[-1]
        self.requests.pop()

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        ended, self.requests = self.requests, []
        self.cache.clear()
        for request in ended:
            request.end(error)


class ContinuousEngine(TransformersEngine):
    """An engine that decodes up to `places` answers in one batch.

    Greedy answers are those of `TransformersEngine`: each row has its own positions and sees its own tokens alone. A
    prompt is prefilled by itself when a place is free, between two steps of the batch. `cache_bytes` bounds the keys
    and values of the batch (default: half of a GPU's free memory, 4 GiB elsewhere); a prompt for which there is no room
    waits. Methods that act inside the decoder, models whose layers keep other states than keys and values of all
    tokens, and checkpoints whose settings change the logits are answered one at a time, beside the batch.
    """

    def __init__(self, model: Any, tokenizer: Any, *, places: int = PLACES, cache_bytes: int | None = None) -> None:
        if places < 1:
            raise ValueError(f"places must be at least 1, got {places}")
        super().__init__(model, tokenizer)
        self.batches = batches(model)
        self.places = places if self.batches else 1
        if self.batches:
            use_row_attention(model.get_decoder())
        self._cache_bytes = cache_bytes or _room_on(model.device)
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._token_bytes = 0  # of one token in the cache; known after the first prefill

    def submit(
        self, inputs: DecoderInput, max_new_tokens: int, deliver: Deliver, reducing: Reducing | None = None
    ) -> Cancel:
        """Put one prompt in the queue for the batch, or answer it alone."""
        if not self.batches or reducing is not None:
            return super().submit(inputs, max_new_tokens, deliver, reducing)
        if len(inputs.visual) != 1:
            raise ValueError(f"submit one prompt at a time, got {len(inputs.visual)}")
        request = _Request(inputs, max_new_tokens, deliver, AnswerText(self.tokenizer))

        def cancel() -> None:
            request.cancelled = True
            with self._changed:
                waiting = request in self._waiting
                if waiting:
                    self._waiting.remove(request)
            if waiting:
                request.end(Piece("", (), "cancelled"))

        with self._changed:
            if self._closed:
                raise EngineUnavailable("the engine is shutting down; send the request again later")
            self._waiting.append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="aviot-engine", daemon=True)
                self._thread.start()
            self._changed.notify()
        return cancel

    def close(self) -> None:
        """End all requests and the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    @torch.inference_mode()
    def _run(self) -> None:
        batch = _Batch(RowCache(self.model.device))
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or batch.requests or self._closed)
            try:
                self._round(batch)
            except Exception as error:  # the batch is lost; the engine goes on with the next requests
                batch.fail(error)
        with self._changed:
            ended = [*batch.requests, *self._waiting]
            self._waiting.clear()
        for request in ended:
            request.end(EngineUnavailable("the engine was shut down; send the request again later"))

    def _round(self, batch: _Batch) -> None:
        """Let requests leave, at most one join, and decode one more token of each."""
        for row in reversed(range(len(batch.requests))):
            if batch.requests[row].cancelled:
                self._leave(batch, row, "cancelled")
        request = self._next(batch)
        if request is not None:
            self._admit(batch, request)
        if batch.requests:
            self._step(batch)

    def _next(self, batch: _Batch) -> _Request | None:
        """Take the next request from the queue if there is a place and room in the cache for it."""
        with self._changed:
            if not self._waiting or len(batch.requests) >= self.places:
                return None
            longest = max(request.longest for request in (self._waiting[0], *batch.requests))
            if batch.requests and longest * (len(batch.requests) + 1) * self._token_bytes > self._cache_bytes:
                return None
            return self._waiting.popleft()

    def _admit(self, batch: _Batch, request: _Request) -> None:
        """Prefill one prompt and decode its first token."""
        if request.cancelled:
            request.end(Piece("", (), "cancelled"))
            return
        try:
            for flags in request.inputs.finite:
                flags.raise_first()
            found = self.prefill(request.inputs)
            ((token, finite, probability),) = _chosen(found.logits)
            if not finite:
                raise not_finite("first")
            layers = found.past_key_values.layers
            self._token_bytes = sum(2 * one.keys[0, :, 0].nbytes for one in layers)
            batch.cache.join(layers)
        except Exception as error:
            request.end(error)
            return
        request.position = _next_position(request.inputs)
        batch.requests.append(request)
        self._take(batch, len(batch.requests) - 1, token, probability)

    def _step(self, batch: _Batch) -> None:
        """Decode one more token in every row."""
        chosen = _chosen(self._logits(batch))
        batch.cache.end()
        for row in reversed(range(len(chosen))):  # a row that leaves gives its place to one that is done already
            token, finite, probability = chosen[row]
            request = batch.requests[row]
            if finite:
                request.position = [position + 1 for position in request.position]
                self._take(batch, row, token, probability)
            else:
                batch.remove(row)
                request.end(not_finite("latest"))

    def _logits(self, batch: _Batch) -> Tensor:
        """Run the decoder over the latest token of every row."""
        device, mask = self.model.device, batch.cache.begin()
        positions = torch.tensor([request.position for request in batch.requests], device=device).T[..., None]
        tokens = torch.tensor([request.token for request in batch.requests], device=device)
        return self.model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=positions[0] if len(positions) == 1 else positions,
            past_key_values=batch.cache,
            use_cache=True,
        ).logits

    def _take(self, batch: _Batch, row: int, token: int, probability: float) -> None:
        """Deliver a row's new token; end the row if it is the last."""
        request = batch.requests[row]
        request.token = token
        finish: Finish | None = None
        if token in self.ends:
            finish = "stop"
        elif len(request.text.tokens) + 1 >= request.limit:
            finish = "length"
        text = request.text.add((token,), last=finish is not None)
        piece = Piece(text, (token,), finish, () if token in self.ends else (probability,))
        if finish is None:
            request.deliver(piece)
            return
        batch.remove(row)
        request.end(piece)

    def _leave(self, batch: _Batch, row: int, finish: Finish) -> None:
        request = batch.requests[row]
        batch.remove(row)
        request.end(Piece(request.text.add((), last=True), (), finish))


def batches(model: Any) -> bool:
    """Return whether a model's answers can be decoded in continuous batches, the same as alone.

    Every layer must attend to all tokens, and the checkpoint's settings must leave the logits as they are.
    """
    text = model.config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if kinds or (getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)):
        return False
    if "flash" in str(text._attn_implementation) or "flex" in str(text._attn_implementation):
        return False  # which take no mask of their own for every row
    settings, _ = model._prepare_generation_config(None, do_sample=False, num_beams=1)
    if settings.stop_strings or settings.max_time:
        return False
    return not model._get_logits_processor(settings, input_ids_seq_length=0, device=model.device)


def _chosen(logits: Tensor) -> list[tuple[int, bool, float]]:
    """Return each row's most probable token, whether all its logits are finite, and the token's probability.

    Waits for the device once.
    """
    last = logits[:, -1].float()
    finite = torch.isfinite(torch.linalg.vector_norm(last, torch.inf, dim=-1))
    found = (last.argmax(-1), finite, largest_probability(last))
    tokens, flags, probabilities = torch.stack([each.double() for each in found]).tolist()
    chosen = zip(tokens, flags, probabilities, strict=True)
    return [(int(token), bool(flag), probability) for token, flag, probability in chosen]


def _next_position(inputs: DecoderInput) -> list[int]:
    """Return the position after a prompt, on each axis that the model has."""
    positions: Int[Tensor, ...] | None = inputs.arguments.get("position_ids")
    if positions is None:
        return [inputs.length]
    return (positions[..., -1].flatten() + 1).tolist()


def _room_on(device: torch.device) -> int:
    if device.type != "cuda":
        return CACHE_BYTES
    return int(CACHE_SHARE * torch.cuda.mem_get_info(device)[0])
