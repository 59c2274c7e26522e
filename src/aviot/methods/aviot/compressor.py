"""The compressor: stages from T frames down to K."""

from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.config import CompressorConfig, check_config
from aviot.methods.aviot.backend import Backend, select_backend
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.fusion import build_gate
from aviot.methods.aviot.inputs import Inputs, check_inputs, require_finite
from aviot.methods.aviot.layers import Linear
from aviot.methods.aviot.metric import Metric
from aviot.methods.aviot.numerics import full_precision
from aviot.methods.aviot.objective import objective_terms, zero_terms
from aviot.methods.aviot.result import Compression
from aviot.methods.aviot.schedule import path_for, ramp
from aviot.methods.aviot.stage import Conditioning, Stage, StageContext, StageModules


class Compressor(nn.Module):
    """T frames of patch features in, K frames' worth out, each a known mixture of all of them.

    `x` is [T,S,D] or [B,T,S,D] in any floating type; the solve runs in float32 (float64 for float64 features) and the
    features come back in their own type. Nothing is kept on the module between calls.
    """

    def __init__(self, config: CompressorConfig) -> None:
        super().__init__()
        self.config = check_config(config)
        self.metric = Metric(config.dim, config.cost_dim)
        self.region_position = Linear(4 * config.position.region_bands, config.dim, bias=False)
        nn.init.zeros_(self.region_position.weight)
        self.gate = build_gate(len(config.levels), config.gate.hidden)

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
        """Compress to ceil(T / ratio) frames' worth, or to `supports` of them.

        `question` is q_v, the question in feature space; without it every question route is off. `relevance` is each
        frame's cosine to the question. `motion` is the features before their positions were added, which the gate's
        smoothness term compares (x itself if not given); the loss reads it when it is asked for, so leave it as it is
        until then. `step` drives the warm-ups of training; None means they are over.
        """
        finite = FiniteCheck()
        device = self.region_position.weight.device
        with full_precision(device):
            inputs = check_inputs(
                self.config,
                device,
                finite,
                x=x,
                question=question,
                relevance=relevance,
                motion=motion,
                ratio=ratio,
                supports=supports,
            )
            path = path_for(self.config, inputs.x.shape[1], inputs.supports)
            if len(path) == 1:
                require_finite(inputs.x, finite)
            progress = ramp(step, self.config.warmup_steps)
            conditioning = self._conditioning(inputs)
            modules = StageModules(self.metric, self.region_position, self.gate)
            backend = select_backend(self.config, modules, inputs.x, path, finite)
            features, stages = self._compress(inputs, path, conditioning, progress, backend)
        return self._result(x, inputs, features, path, stages, backend)

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

    def _conditioning(self, inputs: Inputs) -> Conditioning:
        """The question's routes into the compressor, as far as the config leaves them on."""
        if inputs.question is None:
            return Conditioning()
        return Conditioning(
            question=inputs.question.detach(),
            weights=self.metric.weights(inputs.question) if self.config.question_cost else None,
            relevance=inputs.relevance if self.config.question_allocation else None,
        )

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
            if features.untyped_storage().nbytes() > features.nbytes:  # a part of what the first stage made
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
