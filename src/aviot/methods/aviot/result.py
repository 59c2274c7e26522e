"""A compressor's result: the compressed features, and everything else on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import ObjectiveConfig
from aviot.methods.aviot.analysis import Usage, usage_of
from aviot.methods.aviot.finite import FiniteCheck, FiniteFlags
from aviot.methods.aviot.numerics import full_precision, summary_of
from aviot.methods.aviot.objective import ObjectiveTerms
from aviot.methods.aviot.provenance import ALL, Mixture, Provenance, provenance_of


@dataclass(frozen=True, repr=False)
class Compression:
    """The features of K frames, their provenance, and the training objective.

    Only `features` and `path` are computed at once. `budgets`, `terms`, `loss` and `provenance()` are computed from the
    stages' records on first use, in the gradient mode of the compression itself.
    """

    features: Float[Tensor, "*B K S D"]
    path: tuple[int, ...]  # temporal cardinalities, from T to K
    stages: tuple[Mixture, ...]  # records of the executed stages, always with a batch axis
    _batched: bool
    _recording: bool
    _finite: FiniteCheck
    _terms: Callable[[], ObjectiveTerms]
    _objective: ObjectiveConfig
    _evidence: Float[Tensor, "B"] | None = None

    def __repr__(self) -> str:
        return f"Compression(features={summary_of(self.features)}, path={self.path})"

    @cached_property
    def budgets(self) -> tuple[Any, ...]:
        """One tuple of segment budgets per stage; for a batch, one such tuple per video. Reads from the device."""
        self.check()
        per_stage = [stage.budgets.tolist() for stage in self.stages]
        count = self.features.shape[0] if self._batched else 1
        videos = tuple(tuple(tuple(rows[video]) for rows in per_stage) for video in range(count))
        return videos if self._batched else videos[0]

    @property
    def evidence(self) -> Float[Tensor, "*B"] | None:
        """The range of the question's relevance over frames; None unless a calibrated allocation asked for it."""
        return self._evidence if self._batched or self._evidence is None else self._evidence[0]

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

    @cached_property
    def usage(self) -> Usage | None:
        """Usage of budgets and granularities, averaged over stages; None where nothing was compressed."""
        if not self.stages:
            return None
        usage = usage_of(self.stages)
        if self._batched:
            return usage
        return Usage({name: share[0] for name, share in usage.shares.items()}, usage.budget_entropy[0])

    def provenance(self) -> Provenance:
        """Compose the exact mixture of source frames of every output."""
        self.check()
        features = self.features if self._batched else self.features[None]
        with full_precision(features.device):
            return provenance_of(self.stages, features, batched=self._batched)

    def mix(self, others: Float[Tensor, "*B T S d"]) -> Float[Tensor, "*B K S d"]:
        """Mix other tensors of the same frames with the same coefficients, through which gradients flow if enabled."""
        gradient = self._recording and torch.is_grad_enabled()
        features = self.features if self._batched else self.features[None]
        with full_precision(features.device):
            found = provenance_of(self.stages, features, batched=self._batched, gradient=gradient)
            dtype = torch.promote_types(others.dtype, torch.float32)
            mixed = torch.einsum("...kst,...tsd->...ksd", found.coefficients.to(dtype), others.to(dtype))
        return mixed.to(others.dtype)

    def video(self, index: int) -> "Compression":
        """Return one video of a batch, as if compressed alone; a view, which keeps the batch's memory alive.

        Terms, loss and checks are still computed for the whole batch, once. The stages' records are reduced to the
        mixture of this video; the batch's own are in their `stage`.
        """
        if not self._batched:
            raise ValueError("video(index) picks from a batch, and this compression is of one video: use it as it is")
        if not 0 <= index < len(self.features):
            raise ValueError(f"index must be one of the batch's {len(self.features)} videos, from 0, got {index}")
        return replace(
            self,
            features=self.features[index],
            stages=tuple(VideoMixture(stage, index) for stage in self.stages),
            _batched=False,
            _terms=partial(_terms_of, self, index),
            _evidence=None if self._evidence is None else self._evidence[index, None],
        )

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """Set the gradient mode of the compression."""
        if not self._recording:
            with torch.no_grad():
                yield
        else:
            with torch.inference_mode(False), torch.enable_grad():
                yield

    def check(self) -> None:
        """Raise if any intermediate result was not finite; waits for a GPU. On a CPU the compression itself raised."""
        self._finite.raise_pending()

    def flags(self) -> FiniteFlags | None:
        """Return the flags that `check` would read, still on the device; None if they have been read."""
        return self._finite.flags()


@dataclass(frozen=True)
class VideoMixture:
    """One video's part of a batched stage, still with a batch axis."""

    stage: Mixture
    index: int

    def mixture(self, patches: slice = ALL, videos: slice = ALL) -> Float[Tensor, "1 s K N"]:
        """Return the mixture of each output, at some positions."""
        return self.stage.mixture(patches, self._alone)[videos]

    @property
    def budgets(self) -> Int[Tensor, "1 M"]:
        """Supports of each segment."""
        return self.stage.budgets[self.index, None]

    @property
    def shares(self) -> dict[str, Float[Tensor, "1"]]:
        """Mean share of each granularity in the outputs."""
        return {name: share[self.index, None] for name, share in self.stage.shares.items()}

    def branch(
        self, name: str, patches: slice = ALL, videos: slice = ALL
    ) -> tuple[Float[Tensor, "1 s K N"], Float[Tensor, "1 s K"]]:
        """Return one granularity's distributions over sources, and its share of each output."""
        conditional, share = self.stage.branch(name, patches, self._alone)
        return conditional[videos], share[videos]

    @property
    def _alone(self) -> slice:
        return slice(self.index, self.index + 1)


def _terms_of(batch: Compression, index: int) -> ObjectiveTerms:
    return ObjectiveTerms(*(term[index, None] for term in batch.terms))
