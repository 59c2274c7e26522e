"""A guard that stops generation at NaN and infinity."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessor

from aviot.methods.aviot.finite import FiniteFlags


class FiniteGuard(LogitsProcessor):
    """A logits processor that raises ValueError if logits or values of the compression are not finite.

    `guarded` passes it the raw logits of every step. Those of the first step are read together with the flags of the
    compression before a token is chosen, when the host waits for the device anyway; those of later steps are read once,
    by `check`, when the answer is complete.
    """

    def __init__(self, compression: Sequence[FiniteFlags] = ()) -> None:
        self._compression = tuple(compression)
        self._largest: Tensor | None = None
        self._step = "first"

    def note(self, logits: Float[Tensor, "B L V"]) -> None:
        """Update the largest magnitude of logits, which stays on the device; NaN and infinity propagate."""
        largest = torch.linalg.vector_norm(logits[:, -1].detach(), torch.inf)
        self._largest = largest if self._largest is None else torch.maximum(self._largest, largest)

    def __call__(self, input_ids: Int[Tensor, "B L"], scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Check before the first token is chosen; leave the scores as they are."""
        if self._step == "first":
            self.check()
            self._step = "latest"
        return scores

    def check(self) -> None:
        """Raise ValueError if any value so far is not finite; waits for the device."""
        for flags in self._compression:
            flags.raise_first()
        self._compression = ()
        if self._largest is not None and not bool(torch.isfinite(self._largest)):
            raise not_finite(self._step)


def not_finite(step: str) -> ValueError:
    """Return the error for logits that are not finite at the first or a later token."""
    return ValueError(
        f"the decoder's logits at the {step} token are not finite (NaN or infinity), so there is no "
        "answer; look for NaN or infinity in the checkpoint's weights and in the video's features, "
        "and use bfloat16 or float32 where float16 overflows"
    )


@contextmanager
def guarded(model: Any, guard: FiniteGuard) -> Iterator[FiniteGuard]:
    """Pass all logits of a model's head to a guard, and check the last ones when the block ends."""
    head, owner = model.get_output_embeddings(), threading.get_ident()

    def note(module: Any, inputs: Any, logits: Tensor) -> None:
        if threading.get_ident() == owner:  # other threads may use the same model meanwhile
            guard.note(logits)

    hook = head.register_forward_hook(note)
    try:
        yield guard
        guard.check()
    finally:
        hook.remove()
