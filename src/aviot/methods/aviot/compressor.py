"""The compressor: progressive stages from T frames to K."""

from copy import copy
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.config import CompressorConfig, check_config
from aviot.methods.aviot.allocation import evidence_of, where_evident
from aviot.methods.aviot.backend import Backend, select_backend
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.fusion import build_gate
from aviot.methods.aviot.inputs import Inputs, RawInputs, check_inputs, require_finite
from aviot.methods.aviot.metric import Linear, Metric
from aviot.methods.aviot.numerics import full_precision, working_dtype
from aviot.methods.aviot.objective import objective_terms, zero_terms
from aviot.methods.aviot.result import Compression
from aviot.methods.aviot.schedule import path_for, ramp
from aviot.methods.aviot.stage import Conditioning, Stage, StageContext, StageModules

UNCALIBRATED = (
    'allocation="calibrated" needs the model\'s evidence_threshold, and its config has none; train the model with it, '
    'set compressor_config.allocation.evidence_threshold, or use allocation="printed"'
)


class Compressor(nn.Module):
    """The paper's compressor: T frames of patch features to K, each a known mixture of all T.

    `x` is [T,S,D] or [B,T,S,D] in any floating type; the solve runs in float32 (float64 for float64 features) and the
    result has the features' own type. The module stores nothing between calls.
    """

    def __init__(self, config: CompressorConfig) -> None:
        super().__init__()
        self.config = check_config(config)
        self.metric = Metric(config.dim, config.cost_dim)
        self.region_position = Linear(4 * config.position.region_bands, config.dim, bias=False)
        nn.init.zeros_(self.region_position.weight)
        self.gate = build_gate(len(config.levels), config.gate.hidden)

    def on_grid(self, grid: tuple[int, int]) -> "Compressor":
        """Return this compressor, with the same weights, for another grid of patches.

        A side of regions that has more cells than the grid has patches becomes one region per patch.
        """
        if grid == self.config.grid:
            return self
        regions = tuple((min(rows, grid[0]), min(columns, grid[1])) for rows, columns in self.config.regions)
        other = copy(self)
        other.config = check_config(replace(self.config, grid=grid, regions=regions))
        return other

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
        """Compress to ceil(T / ratio) frames, or to `supports` frames.

        `question` is q_v, the question in feature space; None turns off all conditioning. `relevance` is each frame's
        cosine to the question. `motion` is the features before their positions were added, which the gate's smoothness
        term compares (default: x); the loss reads it lazily, so do not modify it before. `step` is the training step
        of the warm-ups; None means that they are over.
        """
        if step is None and self._asks_for_evidence and self.config.allocation.evidence_threshold is None:
            raise ValueError(UNCALIBRATED)
        finite = FiniteCheck()
        device = self.region_position.weight.device
        with full_precision(device):
            raw = RawInputs(x, question, relevance, motion, ratio, supports)
            inputs = check_inputs(self.config, device, finite, raw)
            path = path_for(self.config, inputs.x.shape[1], inputs.supports)
            if len(path) == 1:
                require_finite(inputs.x, finite)
            progress = ramp(step, self.config.warmup_steps)
            evidence = self._evidence(inputs)
            conditioning = replace(self._conditioning(inputs, evidence), weights=self._weights(inputs))
            modules = StageModules(self.metric, self.region_position, self.gate)
            backend = select_backend(self.config, modules, inputs.x, path, finite)
            features, stages = self._compress(inputs, path, conditioning, progress, backend)
        return replace(self._result(x, inputs, features, path, stages, backend), _evidence=evidence)

    def _compress(
        self, inputs: Inputs, path: tuple[int, ...], conditioning: Conditioning, progress: float, backend: Backend
    ) -> tuple[Float[Tensor, "B K S D"], tuple[Stage, ...]]:
        """Run every stage on the output of the one before."""
        features, stages = backend.prepare(inputs.x), []
        for number, (before, after) in enumerate(pairwise(path), start=1):
            backend.finite.enter(f"stage {number} ({before} to {after} frames): ")
            context = StageContext(features, conditioning, after, progress, reuse_x=number > 1)
            features, stage, conditioning = backend.run_stage(context)
            stages.append(stage)
        return features, tuple(stages)

    @property
    def _asks_for_evidence(self) -> bool:
        return self.config.allocation.rule == "calibrated" and self.config.question_allocation

    def _evidence(self, inputs: Inputs) -> Float[Tensor, "B"] | None:
        """Return the evidence of each question, where the allocation asks for it."""
        if inputs.question is None or inputs.relevance is None or not self._asks_for_evidence:
            return None
        return evidence_of(inputs.relevance)

    def _conditioning(self, inputs: Inputs, evidence: Float[Tensor, "B"] | None) -> Conditioning:
        """Return the question and its relevance, as far as the config enables them and there is evidence."""
        if inputs.question is None:
            return Conditioning()
        relevance = inputs.relevance if self.config.question_allocation else None
        threshold = self.config.allocation.evidence_threshold
        if relevance is not None and evidence is not None and threshold is not None:
            relevance = where_evident(relevance, evidence, threshold)
        return Conditioning(
            question=inputs.question.detach(),
            relevance=relevance,
        )

    def _weights(self, inputs: Inputs) -> Float[Tensor, "B C"] | None:
        """Return the weights of the transport cost; None if they are all ones."""
        question = inputs.question if self.config.question_cost else None
        weights = None if question is None else self.metric.weights(question)
        if self.config.cost_normalization == "printed":
            return weights
        if weights is None:
            like = working_dtype(inputs.x.dtype)
            weights = torch.ones((len(inputs.x), self.config.cost_dim), dtype=like, device=inputs.x.device)
        return self.metric.unit_weights(weights, self.config.transport.unit_cost)

    def _result(
        self,
        x: Tensor,
        inputs: Inputs,
        features: Float[Tensor, "B K S D"],
        path: tuple[int, ...],
        stages: tuple[Stage, ...],
        backend: Backend,
    ) -> Compression:
        if not stages:
            terms = partial(zero_terms, inputs.x)
        else:
            motion = inputs.x if inputs.motion is None else inputs.motion
            terms = partial(objective_terms, backend.objective, stages, motion, self.config.objective, backend.finite)
            features = features.to(x.dtype)
            if features.untyped_storage().nbytes() > features.nbytes:  # a view of the first stage's output
                features = features.clone(memory_format=torch.contiguous_format)
            features = features if inputs.batched else features[0]
        return Compression(
            features=features if stages else x,
            path=path,
            stages=stages,
            _batched=inputs.batched,
            _recording=torch.is_grad_enabled(),
            _finite=backend.finite,
            _terms=terms,
            _objective=self.config.objective,
        )
