"""The paper's two controlled baselines, on the compressor's interface: Uniform Keep and Segment Mean."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.compressor.finite import FiniteCheck
from aviot.compressor.inputs import check_inputs
from aviot.compressor.layout import Layout
from aviot.compressor.objective import zero_terms
from aviot.compressor.result import Compression
from aviot.compressor.segments import Segments
from aviot.config import CompressorConfig


@dataclass(frozen=True)
class FixedMixture:
    """A stage whose mixture was decided before it saw the video: the same for every position."""

    coefficients: Float[Tensor, "B S K N"]
    budgets: Int[Tensor, "B M"]

    def branch(self, name: str) -> tuple[Tensor, Tensor]:
        """Baselines have no granularities."""
        raise ValueError(f"a baseline has no branch {name!r}; use the provenance's own coefficients")


class Baseline(ABC):
    """Compresses in one step, without a question, weights or an objective (its loss is zero)."""

    def __init__(self, config: CompressorConfig) -> None:
        self.config = config

    def __call__(
        self,
        x: Float[Tensor, "*B T S D"],
        *,
        question: Float[Tensor, "*B D"] | None = None,
        relevance: Float[Tensor, "*B T"] | None = None,
        motion: Float[Tensor, "*B T S D"] | None = None,
        ratio: float | None = None,
        supports: int | None = None,
        step: int | None = None,
    ) -> Compression:
        """The call of `Compressor`; what the baseline does not look at is checked and left alone."""
        del step
        finite = FiniteCheck()
        inputs = check_inputs(
            self.config,
            getattr(x, "device", torch.device("cpu")),
            finite,
            x=x,
            question=question,
            relevance=relevance,
            motion=motion,
            ratio=ratio,
            supports=supports,
        )
        frames, kept = inputs.x.shape[1], inputs.supports
        features, stages = x, tuple[FixedMixture, ...]()
        if kept < frames:
            mixed = self._features(inputs.x, kept).to(x.dtype)
            features = mixed if inputs.batched else mixed[0]
            stages = (self._mixture(inputs.x, kept),)
        return Compression(
            features=features,
            path=(frames, kept) if stages else (frames,),
            stages=stages,
            _batched=inputs.batched,
            _recording=torch.is_grad_enabled(),
            _finite=finite,
            _terms=partial(zero_terms, inputs.x),
            _objective=self.config.objective,
        )

    @abstractmethod
    def _features(self, x: Float[Tensor, "B T S D"], kept: int) -> Float[Tensor, "B K S D"]:
        """The compressed features."""

    @abstractmethod
    def _weights(self, frames: int, kept: int, like: Tensor) -> tuple[Float[Tensor, "K T"], tuple[int, ...]]:
        """What each output takes from each frame, and the budgets of the segments that amounts to."""

    def _mixture(self, x: Float[Tensor, "B T S D"], kept: int) -> FixedMixture:
        weights, budgets = self._weights(x.shape[1], kept, x)
        return FixedMixture(
            coefficients=weights.expand(len(x), x.shape[2], *weights.shape),
            budgets=torch.tensor(budgets).expand(len(x), len(budgets)),
        )


class UniformKeep(Baseline):
    """K uniformly spaced frames as they are; the transport's own uniform start, over the whole video."""

    def _features(self, x: Tensor, kept: int) -> Tensor:
        return x.index_select(1, self._kept(x.shape[1], kept, x.device))

    def _weights(self, frames: int, kept: int, like: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        index = self._kept(frames, kept, like.device)
        return (index[:, None] == torch.arange(frames, device=like.device)).to(like.dtype), (kept,)

    @staticmethod
    def _kept(frames: int, kept: int, device: torch.device) -> Int[Tensor, "K"]:
        return Layout(Segments(frames, 1), kept, torch.full((1, 1), kept, device=device)).uniform_sources[0]


class SegmentMean(Baseline):
    """K contiguous, nearly equal intervals, each averaged position by position."""

    def _features(self, x: Tensor, kept: int) -> Tensor:
        segments = Segments(x.shape[1], kept)
        total = segments.split(x.flatten(2)).sum(-2) / segments.sizes(x.device)[:, None]
        return total.unflatten(-1, x.shape[2:])

    def _weights(self, frames: int, kept: int, like: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        segments = Segments(frames, kept)
        share = segments.mask(like.device).to(like.dtype) / segments.sizes(like.device)[:, None]  # [K,n]
        own = torch.eye(kept, dtype=like.dtype, device=like.device)
        return segments.join(own[..., None] * share), (1,) * kept
