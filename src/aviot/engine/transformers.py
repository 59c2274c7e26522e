"""The default engine: `generate` of transformers in this process, guarded against NaN and infinity."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation.streamers import BaseStreamer

from aviot.engine.base import (
    Cancel,
    DecoderInput,
    Deliver,
    Engine,
    Finish,
    Generated,
    Piece,
    Reducing,
    Stopwatch,
)
from aviot.engine.fitting import start
from aviot.engine.guard import FiniteGuard, guarded
from aviot.engine.reduction import reduced_decoder
from aviot.engine.text import AnswerText


class TransformersEngine(Engine):
    """An engine that runs a model and its tokenizer in this process."""

    name = "transformers"
    tells_probabilities = True

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._busy, self._ended = False, threading.Condition()

    def generate(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[str]:
        """Return the greedy answer to each prompt."""
        return [answer.text for answer in self.generate_scored(inputs, max_new_tokens, watch, reducing)]

    @torch.inference_mode()
    def generate_scored(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[Generated]:
        """Return the greedy answer to each prompt, with the probabilities of its tokens."""
        first, largest = _FirstToken(watch.now), _Probabilities()
        watch.report("generate")
        start = watch.now()
        with self._reduced(inputs, reducing):
            tokens = self._generate(inputs, max_new_tokens, logits_processor=LogitsProcessorList([first, largest]))
        answers = tokens[:, inputs.prompt_tokens :]
        watch.spent |= {"prefill": 1000 * (first.at - start), "generate": 1000 * (watch.now() - first.at)}
        texts = self.tokenizer.batch_decode(answers, skip_special_tokens=True)
        scores = largest.until_end(answers, self.ends)
        return [Generated(text.strip(), own) for text, own in zip(texts, scores, strict=True)]

    def submit(
        self, inputs: DecoderInput, max_new_tokens: int, deliver: Deliver, reducing: Reducing | None = None
    ) -> Cancel:
        """Answer one prompt in a thread of its own, which waits until no other is at work."""
        if reducing is not None:
            start(self.model, inputs, reducing)  # refuses what does not fit before anything runs
        cancelled = threading.Event()

        def work() -> None:
            pieces = _Pieces(self.tokenizer, self.ends, deliver, _Probabilities())
            try:
                with self._turn(cancelled) as mine:
                    if mine:
                        self._stream_to(pieces, inputs, max_new_tokens, reducing, cancelled)
            except Exception as error:
                deliver(error)
            else:
                pieces.finish(cancelled=cancelled.is_set())

        def cancel() -> None:
            cancelled.set()
            with self._ended:
                self._ended.notify_all()

        threading.Thread(target=work, daemon=True).start()
        return cancel

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        return frozenset(ends if isinstance(ends, list) else () if ends is None else (ends,))

    def prefill(self, inputs: DecoderInput, reducing: Reducing | None = None) -> Any:
        """Run the decoder over whole prompts; return its last logits and its cache."""
        with self._reduced(inputs, reducing):
            return self.model(**inputs.arguments, logits_to_keep=1, use_cache=True)

    def next_token(self, cache: Any, batch: int) -> Callable[[], Any]:
        """Return a function that decodes one more token after a prefill per call, and appends it to the cache."""
        token = torch.zeros(batch, 1, dtype=torch.long, device=self.model.device)

        def step() -> Any:
            positions = torch.full_like(token, cache.get_seq_length())
            return self.model(input_ids=token, position_ids=positions, past_key_values=cache, use_cache=True)

        return step

    def _reduced(self, inputs: DecoderInput, reducing: Reducing | None) -> AbstractContextManager[None]:
        return nullcontext() if reducing is None else reduced_decoder(self.model, inputs, reducing)

    @contextmanager
    def _turn(self, cancelled: threading.Event) -> Iterator[bool]:
        """Wait until no other request is at work, and yield True; False for one that is cancelled meanwhile."""
        with self._ended:
            self._ended.wait_for(lambda: cancelled.is_set() or not self._busy)
            mine = not cancelled.is_set()
            self._busy = self._busy or mine
        try:
            yield mine
        finally:
            if mine:
                with self._ended:
                    self._busy = False
                    self._ended.notify_all()

    @torch.inference_mode()
    def _stream_to(
        self,
        pieces: "_Pieces",
        inputs: DecoderInput,
        max_new_tokens: int,
        reducing: Reducing | None,
        cancelled: threading.Event,
    ) -> None:
        with self._reduced(inputs, reducing):
            self._generate(
                inputs,
                max_new_tokens,
                streamer=pieces,
                stopping_criteria=[_stop_at(cancelled)],
                logits_processor=LogitsProcessorList([pieces.probabilities]),
            )

    def _generate(self, inputs: DecoderInput, max_new_tokens: int, **options: Any) -> Tensor:
        with guarded(self.model, FiniteGuard(inputs.finite)) as guard:
            processors = LogitsProcessorList([*options.pop("logits_processor", ()), guard])
            return self.model.generate(
                **inputs.arguments,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                num_beams=1,
                logits_processor=processors,
                **options,
            )


def _stop_at(event: threading.Event) -> Callable[..., Tensor]:
    """Return a stopping criterion that ends every sequence once an event is set."""

    def stop(input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        return torch.full((len(input_ids),), event.is_set(), dtype=torch.bool, device=input_ids.device)

    return stop


class _Pieces(BaseStreamer):
    """A streamer that delivers each token as a piece; `probabilities` notes those of the tokens."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], deliver: Deliver, probabilities: "_Probabilities") -> None:
        self._text, self._ends, self._deliver = AnswerText(tokenizer), ends, deliver
        self.probabilities = probabilities
        self._prompt_has_passed = False

    def put(self, value: Tensor) -> None:
        """Take the prompt, and then one token at a time."""
        if self._prompt_has_passed:
            tokens = tuple(value.flatten().tolist())
            scores = () if tokens[-1] in self._ends else (self.probabilities.latest(),)
            self._deliver(Piece(self._text.add(tokens), tokens, probabilities=scores))
        self._prompt_has_passed = True

    def end(self) -> None:
        """Wait for `finish`: the last token's logits have not been checked yet."""

    def finish(self, *, cancelled: bool) -> None:
        """Deliver the last piece, which has no token."""
        ended = self._text.tokens and self._text.tokens[-1] in self._ends
        why: Finish = "stop" if ended else "cancelled" if cancelled else "length"
        self._deliver(Piece(self._text.add((), last=True), (), why))


class _FirstToken(LogitsProcessor):
    """A logits processor that records the time of the first logits, the end of the prefill."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.at = now, 0.0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.at = self.at or self.now()
        return scores


class _Probabilities(LogitsProcessor):
    """A logits processor that keeps each step's largest probability, that of the greedy token, on the device."""

    def __init__(self) -> None:
        self._steps: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._steps.append(largest_probability(scores.float()))
        return scores

    def latest(self) -> float:
        """Return the latest step's probability, of a single answer; waits for the device."""
        return float(self._steps[-1])

    def until_end(self, answers: Tensor, ends: frozenset[int]) -> list[tuple[float, ...]]:
        """Return the probabilities of each answer's tokens before its first end token."""
        every = torch.stack(self._steps, 1).tolist() if self._steps else [[] for _ in answers]
        found = []
        for tokens, row in zip(answers.tolist(), every, strict=True):
            stop = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
            found.append(tuple(row[:stop]))
        return found


def largest_probability(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B"]:
    """Return each row's largest probability, that of the greedy token."""
    return (logits.amax(-1) - logits.logsumexp(-1)).exp()
