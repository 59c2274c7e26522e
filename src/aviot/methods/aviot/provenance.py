"""Exact provenance: every output as a mixture of source frames, composed over stages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.numerics import full_precision, summary_of, working_dtype
from aviot.ot.device import on_gpu
from aviot.utils.values import as_whole

# Coefficients of one stage in memory at a time: 20 positions of 224 frames, or all of several videos.
CPU_ELEMENTS = 2**20
ACCELERATOR_ELEMENTS = 2**28
ALL = slice(None)


class Mixture(Protocol):
    """A stage whose outputs are mixtures of its sources, position by position."""

    def mixture(self, patches: slice = ALL, videos: slice = ALL) -> Float[Tensor, "b s K N"]:
        """Return the mixture of each output, at some positions, for some videos of the batch."""
        ...

    @property
    def budgets(self) -> Int[Tensor, "B M"]:
        """Supports of each segment."""
        ...

    @property
    def shares(self) -> Mapping[str, Float[Tensor, "B"]]:
        """Mean share of each granularity in the outputs; no gradient."""
        ...

    def branch(
        self, name: str, patches: slice = ALL, videos: slice = ALL
    ) -> tuple[Float[Tensor, "b s K N"], Float[Tensor, "b s K"]]:
        """Return one granularity's distributions over sources, and its share of each output."""
        ...


@dataclass(frozen=True, repr=False)
class Provenance:
    """The outputs' sources: `coefficients[j, s, i]` is the weight of frame i's patch s in output j's patch s.

    Rows are distributions over the T source frames, for the fused output and for each granularity's branch. For
    the fused output, the coefficients times the features are the output. A batch has a leading axis everywhere.
    """

    coefficients: Float[Tensor, "*B K S T"]
    share: Float[Tensor, "*B K S"]  # of this branch in the output's mass; one for the fused output
    _stages: tuple[Mixture, ...]
    _batched: bool

    def __repr__(self) -> str:
        return f"Provenance(coefficients={summary_of(self.coefficients)})"

    @property
    def mass(self) -> Float[Tensor, "*B K S T"]:
        """share * coefficients, this branch's contribution; over all granularities it adds up to the fused output's."""
        return self.share[..., None] * self.coefficients

    def frames(self) -> Float[Tensor, "*B K T"]:
        """Return omega, the coefficients averaged over positions: each output's distribution over frames."""
        return self.coefficients.mean(-2)

    def tokens(self) -> Float[Tensor, "*B K S T"]:
        """Return the coefficients by position: `tokens()[j, :, i]` is output j's map over frame i's patches."""
        return self.coefficients

    def trace(self, frame: int, patch: int | None = None) -> Float[Tensor, "*B K"]:
        """Return the weight of one frame's patch in every output, at the patch's position.

        Without a patch, return the frame's mean weight over positions, a column of `frames()`.
        """
        patches, frames = self.coefficients.shape[-2:]
        column = self.coefficients[..., _place("frame", frame, frames)]
        return column.mean(-1) if patch is None else column[..., _place("patch", patch, patches)]

    @property
    def branch_names(self) -> tuple[str, ...]:
        """Names of the granularities, coarse to fine; none for a baseline."""
        return tuple(self._stages[-1].shares) if self._stages else ()

    def branch(self, name: str) -> "Provenance":
        """Return the provenance of one granularity: "global", "medium" or "local" for the paper's chain.

        The last stage's plan of that granularity over the fused outputs of all earlier stages; its share is the last
        stage's gate.
        """
        whole = self.coefficients if self._batched else self.coefficients[None]
        with torch.no_grad():
            return _gathered(partial(self._branch_at, name), whole.transpose(1, 2), self._stages, self._batched)

    def branch_mass(self, name: str, patches: slice) -> Float[Tensor, "*B K s T"]:
        """Return `branch(name).mass` at some positions without computing the others."""
        with torch.no_grad(), full_precision(self.coefficients.device):
            coefficients, share = self._branch_at(name, patches)
        mass = (share[..., None] * coefficients).transpose(1, 2)
        return mass if self._batched else mass[0]

    def _branch_at(self, name: str, patches: slice) -> tuple[Float[Tensor, "B s K T"], Float[Tensor, "B s K"]]:
        """Return a branch's distributions over frames, and its shares, at some positions."""
        if not self._stages:
            raise ValueError("no stage was executed (nothing to compress), so there are no branches; use .coefficients")
        *earlier, last = self._stages
        conditional, share = last.branch(name, patches)
        return _over(conditional, earlier, patches), share

    def branches(self) -> Iterator[tuple[str, "Provenance"]]:
        """Yield every granularity's name and provenance."""
        for name in self.branch_names:
            yield name, self.branch(name)


def _place(what: str, value: int, count: int) -> int:
    place = as_whole(value)
    if place is None or not 0 <= place < count:
        raise ValueError(f"{what} must be a whole number from 0 to {count - 1}, got {value!r}")
    return place


def provenance_of(
    stages: Sequence[Mixture], features: Float[Tensor, "B K S D"], *, batched: bool, gradient: bool = False
) -> Provenance:
    """Return C = B_J ... B_2 B_1 at every position (eq:supp_progressive_composition); the identity without stages."""
    batch, outputs, patches = features.shape[:3]
    like = features.new_empty((), dtype=working_dtype(features.dtype))
    if not stages:
        eye = torch.eye(outputs, dtype=like.dtype, device=like.device).expand(batch, patches, outputs, outputs)
        return _provenance(eye, eye.new_ones(eye.shape[:-1]), (), batched)
    *earlier, last = stages

    def part(patches: slice) -> tuple[Tensor, Tensor]:
        composed = _over(last.mixture(patches), earlier, patches)
        return composed, composed.new_ones(composed.shape[:-1])

    frames = stages[0].mixture(slice(1)).shape[-1]
    with torch.set_grad_enabled(gradient):
        return _gathered(part, like.expand(batch, patches, outputs, frames), tuple(stages), batched)


def _over(rows: Float[Tensor, "B s K N"], earlier: Sequence[Mixture], patches: slice) -> Float[Tensor, "B s K T"]:
    """Turn mixtures of a stage's sources into mixtures of the video's frames.

    From the last of the earlier stages to the first: in this order every product has the few rows of the last stage.
    """
    for stage in reversed(earlier):
        rows = rows @ stage.mixture(patches)
    return rows


def _gathered(
    part: Callable[[slice], tuple[Tensor, Tensor]],
    like: Float[Tensor, "B S K T"],
    stages: tuple[Mixture, ...],
    batched: bool,
) -> Provenance:
    """Compute coefficients and shares in chunks of positions: a stage's own mixtures are large."""
    batch, patches, _, frames = like.shape
    coefficients = like.new_empty(like.shape)
    share = like.new_empty(like.shape[:-1])
    elements = ACCELERATOR_ELEMENTS if on_gpu(like) else CPU_ELEMENTS
    at_once = max(1, elements // (batch * frames * frames))
    with full_precision(like.device):
        for first in range(0, patches, at_once):
            here = slice(first, first + at_once)
            coefficients[:, here], share[:, here] = part(here)
    return _provenance(coefficients, share, stages, batched)


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
