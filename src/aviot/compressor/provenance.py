"""Exact provenance: the mixture of source frames behind every output, composed over stages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.compressor.numerics import full_precision, working_dtype
from aviot.values import as_whole


class Mixture(Protocol):
    """A stage as provenance sees it: outputs that are mixtures of its sources, position by position."""

    @property
    def coefficients(self) -> Float[Tensor, "B S K N"]:
        """The mixture behind each output."""
        ...

    @property
    def budgets(self) -> Int[Tensor, "B M"]:
        """Supports of each segment."""
        ...

    @property
    def shares(self) -> Mapping[str, Float[Tensor, "B"]]:
        """How much of the outputs came by each granularity, in the mean; no gradient."""
        ...

    def branch(self, name: str) -> tuple[Float[Tensor, "B S K N"], Float[Tensor, "B S K"]]:
        """One granularity's distributions over sources, and its share of each output."""
        ...


@dataclass(frozen=True)
class Provenance:
    """Where the outputs come from: `coefficients[j, s, i]` is the weight of frame i's patch s in output j's patch s.

    Rows are distributions over the T source frames, for the fused output and for each granularity's path alone. For
    the fused output, the coefficients times the features are the output. A batch has a leading axis everywhere.
    """

    coefficients: Float[Tensor, "*B K S T"]
    share: Float[Tensor, "*B K S"]  # of the output's mass that came by this path; one for the fused output
    _stages: tuple[Mixture, ...]
    _batched: bool

    @property
    def mass(self) -> Float[Tensor, "*B K S T"]:
        """share * coefficients: what this path contributes; over all granularities it adds up to the fused output's."""
        return self.share[..., None] * self.coefficients

    def frames(self) -> Float[Tensor, "*B K T"]:
        """omega, the coefficients averaged over positions: each output's distribution over frames."""
        return self.coefficients.mean(-2)

    def tokens(self) -> Float[Tensor, "*B K S T"]:
        """The coefficients position by position: `tokens()[j, :, i]` is output j's map over frame i's patches."""
        return self.coefficients

    def trace(self, frame: int, patch: int | None = None) -> Float[Tensor, "*B K"]:
        """Where a patch of a frame went: its weight in every output at its own position.

        Without a patch, where the whole frame went: the mean over positions, a column of `frames()`.
        """
        patches, frames = self.coefficients.shape[-2:]
        column = self.coefficients[..., _place("frame", frame, frames)]
        return column.mean(-1) if patch is None else column[..., _place("patch", patch, patches)]

    @property
    def branch_names(self) -> tuple[str, ...]:
        """The granularities that can be looked at apart, coarse to fine; none for a baseline."""
        return tuple(self._stages[-1].shares) if self._stages else ()

    def branch(self, name: str) -> "Provenance":
        """The path of one granularity: "global", "medium" or "local" for the paper's chain.

        The last stage's plan of that granularity, over what all earlier stages made (whose fused outputs are its
        sources); its share is the last stage's gate.
        """
        if not self._stages:
            raise ValueError("no stage was executed (nothing to compress), so there are no branches; use .coefficients")
        return self._over_earlier(name, self._earlier())

    def branches(self) -> Iterator[tuple[str, "Provenance"]]:
        """Every granularity's name and path, one after the other; what the earlier stages made is composed once."""
        earlier = self._earlier() if self.branch_names else None
        for name in self.branch_names:
            yield name, self._over_earlier(name, earlier)

    def _earlier(self) -> Float[Tensor, "B S N T"] | None:
        with full_precision(self.coefficients.device):
            return _compose(self._stages[:-1])

    def _over_earlier(self, name: str, earlier: Float[Tensor, "B S N T"] | None) -> "Provenance":
        conditional, share = self._stages[-1].branch(name)
        with full_precision(conditional.device):
            composed = conditional if earlier is None else conditional @ earlier
        return _provenance(composed.detach(), share.detach(), self._stages, self._batched)


def _place(what: str, value: int, count: int) -> int:
    place = as_whole(value)
    if place is None or not 0 <= place < count:
        raise ValueError(f"{what} must be a whole number from 0 to {count - 1}, got {value!r}")
    return place


@torch.no_grad()
def provenance_of(stages: Sequence[Mixture], features: Float[Tensor, "B K S D"], *, batched: bool) -> Provenance:
    """C = B_J ... B_2 B_1 at every position (eq:supp_progressive_composition); the identity without stages."""
    batch, kept, patches = features.shape[:3]
    composed = _compose(stages)
    if composed is None:
        eye = torch.eye(kept, dtype=working_dtype(features.dtype), device=features.device)
        composed = eye.expand(batch, patches, kept, kept)
    return _provenance(composed, composed.new_ones(composed.shape[:-1]), tuple(stages), batched)


def _compose(stages: Sequence[Mixture]) -> Float[Tensor, "B S K T"] | None:
    composed: Tensor | None = None
    for stage in stages:
        step = stage.coefficients.detach()
        composed = step if composed is None else step @ composed
    return composed


def _provenance(
    composed: Float[Tensor, "B S K T"], share: Float[Tensor, "B S K"], stages: tuple[Mixture, ...], batched: bool
) -> Provenance:
    coefficients, share = composed.transpose(1, 2), share.transpose(1, 2)
    return Provenance(
        coefficients=coefficients if batched else coefficients[0],
        share=share if batched else share[0],
        _stages=stages,
        _batched=batched,
    )
