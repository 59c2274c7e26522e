"""Checks for NaN and infinity: at once on a CPU, deferred where reading a flag would stall the device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class FiniteFlags:
    """The checks of one computation as one small tensor, to be read where the host synchronises anyway.

    `largest[i]` is the largest magnitude among the values that `messages[i]` is about; NaN or infinity passes through.
    """

    messages: tuple[str, ...]
    largest: Float[Tensor, "checks"]

    def clone(self) -> "FiniteFlags":
        """Copy the tensor, which a replayed graph overwrites."""
        return replace(self, largest=self.largest.clone())

    def raise_first(self) -> None:
        """Raise for the first failed check, if any; waits for the device."""
        for message, finite in zip(self.messages, torch.isfinite(self.largest).tolist(), strict=True):
            if not finite:
                raise ValueError(f"{message}; look for NaN, infinity or values near the float range in the inputs")


class FiniteCheck:
    """The finite checks of one compression.

    On a CPU a failed check raises at once. On an accelerator reading a flag would stall the device, so flags are stored
    until `raise_pending`, which a result calls when the host reads anything from it. While a CUDA graph is captured
    the values themselves are stored, until `flags` reduces all of them in one launch that the graph then replays.
    """

    def __init__(self) -> None:
        self._prefix = ""
        self._pending: list[FiniteFlags] = []
        self._unreduced: list[tuple[str, Tensor]] = []

    def enter(self, prefix: str) -> None:
        """Set the prefix of the messages of later checks."""
        self._prefix = prefix

    def require(self, values: Tensor, what: str) -> None:
        """Require values to be finite; `what` reads "the … is" or "… are", and the sentence goes on "not finite"."""
        self.require_each(values.detach().reshape(1, -1), [what])

    def require_each(self, values: Float[Tensor, "count ..."], whats: Sequence[str]) -> None:
        """Require the same of several values at once."""
        messages = [f"{self._prefix}{what} not finite (NaN or infinity)" for what in whats]
        if _being_captured(values):
            self._unreduced += zip(messages, values.detach(), strict=True)
            return
        # one launch; NaN or infinity passes through
        largest = torch.linalg.vector_norm(values.detach().flatten(1), torch.inf, dim=1)
        self._pending.append(FiniteFlags(tuple(messages), largest))
        if values.device.type == "cpu":
            self.raise_pending()

    def flags(self) -> FiniteFlags | None:
        """Return all checks that have not been read as one tensor; None if there are none."""
        parts = [*self._pending, *self._reduced()]
        if not parts:
            return None
        messages = tuple(message for part in parts for message in part.messages)
        return FiniteFlags(messages, torch.cat([part.largest for part in parts]))

    def _reduced(self) -> list[FiniteFlags]:
        """Reduce the stored values: one launch per type."""
        by_type: dict[torch.dtype, list[tuple[str, Tensor]]] = {}
        for message, values in self._unreduced:
            by_type.setdefault(values.dtype, []).append((message, values))
        return [
            FiniteFlags(
                tuple(message for message, _ in checks),
                torch.stack(torch._foreach_norm([values for _, values in checks], torch.inf)),
            )
            for checks in by_type.values()
        ]

    def raise_pending(self) -> None:
        """Raise for the first failed check, if any."""
        for flags in self._pending:
            flags.raise_first()
        self._pending.clear()


def _being_captured(values: Tensor) -> bool:
    """Return True if launches are being captured into a CUDA graph."""
    return values.is_cuda and torch.cuda.is_current_stream_capturing()
