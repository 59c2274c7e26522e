"""Baselines on the compressor's interface: the paper's Uniform Keep and Segment Mean, and random drop."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.config import CompressorConfig, ObjectiveConfig, check_config
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.inputs import RawInputs, check_inputs, require_finite
from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.aviot.objective import zero_terms
from aviot.methods.aviot.provenance import ALL
from aviot.methods.aviot.result import Compression
from aviot.methods.aviot.schedule import ramp
from aviot.methods.aviot.segments import Layout, Segments

Rule: TypeAlias = Callable[[Float[Tensor, "B T S C"]], Float[Tensor, "B K S C"]]


@dataclass(frozen=True)
class FixedMixture:
    """A stage whose mixture does not depend on the features and is the same at every position."""

    coefficients: Float[Tensor, "B S K N"]
    budgets: Int[Tensor, "B M"]
    shares: Mapping[str, Tensor] = field(default_factory=dict)  # baselines have no granularities

    def mixture(self, patches: slice = ALL, videos: slice = ALL) -> Float[Tensor, "b s K N"]:
        """Return the mixture at some positions, for some videos of the batch."""
        return self.coefficients[videos, patches]

    def branch(self, name: str, patches: slice = ALL, videos: slice = ALL) -> tuple[Tensor, Tensor]:
        """Raise: baselines have no granularities."""
        raise ValueError(f"a baseline has no branch {name!r}; use the provenance's own coefficients")


@dataclass(frozen=True)
class Mixing:
    """A way to mix frames into fewer: its rule for features like these, and the supports of each segment."""

    rule: Callable[[Float[Tensor, "B T S D"], int], Rule]
    budgets: tuple[int, ...]


def mix_frames(x: Float[Tensor, "*B T S D"], supports: int, mixing: Mixing, finite: FiniteCheck) -> Compression:
    """Mix one video or a batch by a rule that is decided once, for features and provenance alike."""
    batched = x.ndim == 4
    videos = x if batched else x[None]
    require_finite(videos, finite)
    frames = videos.shape[1]
    features, stages = x, tuple[FixedMixture, ...]()
    if supports < frames:
        rule = mixing.rule(videos, supports)
        mixed = rule(videos)
        features = mixed if batched else mixed[0]
        stages = (_mixture(videos, mixing.budgets, rule),)
    return Compression(
        features=features,
        path=(frames, supports) if stages else (frames,),
        stages=stages,
        _batched=batched,
        _recording=torch.is_grad_enabled(),
        _finite=finite,
        _terms=partial(zero_terms, videos),
        _objective=ObjectiveConfig(),
    )


def _mixture(x: Float[Tensor, "B T S D"], budgets: tuple[int, ...], rule: Rule) -> FixedMixture:
    batch, frames, patches, _ = x.shape
    unit = torch.eye(frames, dtype=working_dtype(x.dtype), device=x.device)  # frame i is the i-th unit vector
    coefficients = rule(unit[None, :, None].expand(batch, -1, -1, -1))[:, :, 0]  # [B,K,T]
    supports = coefficients.shape[1]
    each = torch.tensor([budgets]).expand(batch, -1)
    return FixedMixture(coefficients[:, None].expand(batch, patches, supports, frames), each)


class Baseline(nn.Module):
    """A compressor of one step, without a question, weights or an objective (its loss is zero)."""

    def __init__(self, config: CompressorConfig) -> None:
        super().__init__()
        self.config = check_config(config)

    def forward(
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
        """Compress; arguments are those of `Compressor`, and unused ones are checked only."""
        ramp(step, self.config.warmup_steps)  # checked like everything else
        finite = FiniteCheck()
        inputs = check_inputs(self.config, None, finite, RawInputs(x, question, relevance, motion, ratio, supports))
        mixing = Mixing(self.rule, self.budgets(inputs.supports))
        return mix_frames(x, inputs.supports, mixing, finite)

    @abstractmethod
    def rule(self, x: Float[Tensor, "B T S D"], count: int) -> Rule:
        """Return the function from frames to `count` frames, used for features and provenance alike."""

    @abstractmethod
    def budgets(self, count: int) -> tuple[int, ...]:
        """Return the supports of each segment under the rule."""


class UniformKeep(Baseline):
    """K uniformly spaced frames, unchanged; the transport's own uniform start, over the whole video."""

    def rule(self, x: Float[Tensor, "B T S D"], count: int) -> Rule:
        """Select frames."""
        return uniform_frames(x, count)

    def budgets(self, count: int) -> tuple[int, ...]:
        """Return one segment, the whole video."""
        return (count,)


class SegmentMean(Baseline):
    """K contiguous, nearly equal intervals, each averaged position by position."""

    def rule(self, x: Float[Tensor, "B T S D"], count: int) -> Rule:
        """Average intervals, accumulated in float32 or better."""
        return segment_means(x, count)

    def budgets(self, count: int) -> tuple[int, ...]:
        """Return one support per interval."""
        return (1,) * count


class RandomDrop(Baseline):
    """K unchanged frames, drawn at random without replacement for each video, in temporal order.

    Every call draws again from the caller's generator; with a generator on the features' device the host never waits.
    """

    def __init__(self, config: CompressorConfig, generator: torch.Generator) -> None:
        super().__init__(config)
        self.generator = generator

    def rule(self, x: Float[Tensor, "B T S D"], count: int) -> Rule:
        """Draw frames."""
        return random_frames(x, count, self.generator, draws=len(x))

    def budgets(self, count: int) -> tuple[int, ...]:
        """Return one segment, the whole video."""
        return (count,)


def uniform_frames(x: Float[Tensor, "B T S D"], supports: int) -> Rule:
    """Return the rule that picks uniformly spaced frames."""
    layout = Layout(Segments(x.shape[1], 1), supports, torch.full((1, 1), supports, device=x.device))
    return partial(torch.index_select, dim=1, index=layout.uniform_sources[0])


def segment_means(x: Float[Tensor, "B T S D"], supports: int) -> Rule:
    """Return the rule that averages contiguous, nearly equal intervals, accumulating in float32 or better."""
    return partial(_interval_means, Segments(x.shape[1], supports))


def random_frames(x: Float[Tensor, "B T S D"], supports: int, generator: torch.Generator, *, draws: int) -> Rule:
    """Return the rule that picks frames at random: `draws` is one for all videos, or one each."""
    order = torch.rand(draws, x.shape[1], generator=generator, device=generator.device).argsort(-1)
    return partial(_picked, order[:, :supports].sort(-1).values.to(x.device))


def _interval_means(segments: Segments, x: Float[Tensor, "B T S C"]) -> Float[Tensor, "B K S C"]:
    total = segments.split(x.flatten(2)).sum(-2, dtype=working_dtype(x.dtype))
    return (total / segments.sizes(x.device)[:, None]).to(x.dtype).unflatten(-1, x.shape[2:])


def _picked(index: Int[Tensor, "#B K"], x: Float[Tensor, "B T S C"]) -> Float[Tensor, "B K S C"]:
    return x[torch.arange(len(x), device=x.device)[:, None], index]
