"""The default engine: `generate` of transformers in this process, guarded against NaN and infinity."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, TextIteratorStreamer

from aviot.engine.base import DecoderInput, Engine, Reducing, Stopwatch
from aviot.engine.fitting import start
from aviot.engine.guard import FiniteGuard, guarded
from aviot.engine.reduction import reduced_decoder


class TransformersEngine(Engine):
    """An engine that runs a model and its tokenizer in this process."""

    name = "transformers"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer

    @torch.inference_mode()
    def generate(
        self, inputs: DecoderInput, max_new_tokens: int, watch: Stopwatch, reducing: Reducing | None = None
    ) -> Sequence[str]:
        """Return the greedy answer to each prompt."""
        first = _FirstToken(watch.now)
        watch.report("generate")
        start = watch.now()
        with self._reduced(inputs, reducing):
            tokens = self._generate(inputs, max_new_tokens, logits_processor=LogitsProcessorList([first]))
        answers = tokens[:, inputs.prompt_tokens :]
        watch.spent |= {"prefill": 1000 * (first.at - start), "generate": 1000 * (watch.now() - first.at)}
        return [text.strip() for text in self.tokenizer.batch_decode(answers, skip_special_tokens=True)]

    def stream(self, inputs: DecoderInput, max_new_tokens: int, reducing: Reducing | None = None) -> Iterator[str]:
        """Return the greedy answer to one prompt in pieces; errors of the decoder are raised after the last piece."""
        if reducing is not None:
            start(self.model, inputs, reducing)  # refuses what does not fit before anything runs
        return self._pieces(inputs, max_new_tokens, reducing)

    def _pieces(self, inputs: DecoderInput, max_new_tokens: int, reducing: Reducing | None) -> Iterator[str]:
        pieces = TextIteratorStreamer(self.tokenizer, skip_prompt=inputs.prompt_tokens > 0, skip_special_tokens=True)
        errors: list[BaseException] = []
        abandoned = threading.Event()

        def work() -> None:
            try:
                with torch.inference_mode(), self._reduced(inputs, reducing):
                    self._generate(inputs, max_new_tokens, streamer=pieces, stopping_criteria=[_stop_at(abandoned)])
            except BaseException as error:
                errors.append(error)
                pieces.end()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield from (piece for piece in pieces if piece)
        finally:
            abandoned.set()
            thread.join()
        if errors:
            raise errors[0]

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


class _FirstToken(LogitsProcessor):
    """A logits processor that records the time of the first logits, the end of the prefill."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.at = now, 0.0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.at = self.at or self.now()
        return scores
