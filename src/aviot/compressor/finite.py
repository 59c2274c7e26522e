"""Never hide a NaN: checks that raise where it costs nothing, and wait where looking would stall the device."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class FiniteCheck:
    """Collects "this must be finite" for one compression.

    On a CPU a failed check raises at once. On an accelerator reading a flag would stall the device, so flags wait until
    `raise_pending`, which a result calls when the host reads anything from it.
    """

    def __init__(self) -> None:
        self._where = ""
        self._pending: list[tuple[list[str], Tensor]] = []

    def enter(self, where: str) -> None:
        """Name the place that the checks to come belong to."""
        self._where = where

    def require(self, values: Tensor, what: str) -> None:
        """`what` reads "the … is" or "… are"; the sentence goes on "not finite"."""
        self.require_each(values.detach().reshape(1, -1), [what])

    def require_each(self, values: Float[Tensor, "count ..."], whats: Sequence[str]) -> None:
        """The same of several values at once.

        Inside a graph's capture nothing is kept: who replays it has to look at what comes out.
        """
        if values.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        # one launch; NaN or infinity passes through
        largest = torch.linalg.vector_norm(values.detach().flatten(1), torch.inf, dim=1)
        messages = [f"{self._where}{what} not finite (NaN or infinity)" for what in whats]
        self._pending.append((messages, largest))
        if values.device.type == "cpu":
            self.raise_pending()

    def raise_pending(self) -> None:
        """Raise for the first failed check, if any."""
        for messages, largest in self._pending:
            for message, finite in zip(messages, torch.isfinite(largest).tolist(), strict=True):
                if not finite:
                    raise ValueError(
                        f"{message}; look for NaN, infinity or values near the float range in what went in"
                    )
        self._pending.clear()
