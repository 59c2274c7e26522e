"""What a compressor returns: the compressed features, and everything else on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.compressor.finite import FiniteCheck
from aviot.compressor.numerics import full_precision
from aviot.compressor.objective import ObjectiveTerms
from aviot.compressor.provenance import Mixture, Provenance, provenance_of
from aviot.config import ObjectiveConfig


@dataclass(frozen=True)
class Compression:
    """K frames' worth of features, how they were made, and what that costs in training.

    Only `features` and `path` are there at once. `budgets`, `terms`, `loss` and `provenance()` are worked out from the
    stages' records when they are asked for, with the gradient mode of the compression itself.
    """

    features: Float[Tensor, "*B K S D"]
    path: tuple[int, ...]  # temporal cardinalities, from T to K
    stages: tuple[Mixture, ...]  # records of the executed stages, always with a batch axis
    _batched: bool
    _recording: bool
    _finite: FiniteCheck
    _terms: Callable[[], ObjectiveTerms]
    _objective: ObjectiveConfig

    @cached_property
    def budgets(self) -> tuple[Any, ...]:
        """One tuple of segment budgets a stage; for a batch, one such tuple a video. Reads from the device."""
        self.check()
        per_stage = [stage.budgets.tolist() for stage in self.stages]
        count = self.features.shape[0] if self._batched else 1
        videos = tuple(tuple(tuple(rows[video]) for rows in per_stage) for video in range(count))
        return videos if self._batched else videos[0]

    @cached_property
    def terms(self) -> ObjectiveTerms:
        """Every named term of the objective, unweighted, averaged over stages."""
        with self._mode(), full_precision(self.features.device):
            terms = self._terms()
        return terms if self._batched else ObjectiveTerms(*(term[0] for term in terms))

    @cached_property
    def loss(self) -> Float[Tensor, "*B"]:
        """The objective averaged over stages."""
        with self._mode():
            return self.terms.total(self._objective)

    def provenance(self) -> Provenance:
        """The exact mixture of source frames behind every output, composed now."""
        self.check()
        features = self.features if self._batched else self.features[None]
        with full_precision(features.device):
            return provenance_of(self.stages, features, batched=self._batched)

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """The gradient mode of the compression, wherever the result is read."""
        if not self._recording:
            with torch.no_grad():
                yield
        else:
            with torch.inference_mode(False), torch.enable_grad():
                yield

    def check(self) -> None:
        """Raise if anything on the way was not finite. On a CPU that has happened already; a GPU is waited for."""
        self._finite.raise_pending()
