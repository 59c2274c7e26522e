"""The one dispatch between plain torch and kernels: a backend, selected once per compression.

Single operations that are used alone too (`ot.solve`, `numerics.squared_distances`, `position.add_residual`) have CUDA
kernels of their own, also inside `TorchBackend`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.config import CompressorConfig
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.metric import LayerNorm, Linear, Metric
from aviot.methods.aviot.numerics import working_dtype
from aviot.methods.aviot.objective import ObjectiveBackend, TorchObjective
from aviot.methods.aviot.segments import Segments
from aviot.methods.aviot.stage import StageContext, StageModules, StageOutput, run_stage
from aviot.ot.device import LARGEST_ON_CHIP, in_range, on_gpu

MAX_COST_DIM = 256  # width of the transport space whose tile fits in a multiprocessor's registers


class Backend(Protocol):
    """The implementation of one compression's stages, objective and finite checks."""

    @property
    def finite(self) -> FiniteCheck:
        """The compression's checks for NaN and infinity."""
        ...

    @property
    def objective(self) -> ObjectiveBackend:
        """The objective of the stages that this backend ran."""
        ...

    def prepare(self, x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B N S D"]:
        """Return the features in the form that the first stage takes."""
        ...

    def run_stage(self, context: StageContext) -> StageOutput:
        """Run one stage."""
        ...


@dataclass(frozen=True)
class TorchBackend:
    """Plain torch: any device, type and size."""

    config: CompressorConfig
    modules: StageModules
    finite: FiniteCheck

    @property
    def objective(self) -> ObjectiveBackend:
        """The objective in plain torch."""
        return TorchObjective()

    def prepare(self, x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B N S D"]:
        """Cast once where gradients are recorded; without them a stage casts a few frames at a time."""
        return x.to(working_dtype(x.dtype)) if torch.is_grad_enabled() else x

    def run_stage(self, context: StageContext) -> StageOutput:
        """Run one stage."""
        return run_stage(self.config, self.modules, context, self.finite)


def select_backend(
    config: CompressorConfig,
    modules: StageModules,
    x: Float[Tensor, "B N S D"],
    path: tuple[int, ...],
    finite: FiniteCheck,
) -> Backend:
    """Return the backend of a whole compression: kernels where they support it, else plain torch."""
    if len(path) == 1 or not kernels_serve(config, modules, x, path):
        return TorchBackend(config, modules, finite)
    from aviot.methods.aviot.kernel_backend import KernelBackend  # needs triton

    return KernelBackend.build(config, modules, finite)


def kernels_serve(
    config: CompressorConfig, modules: StageModules, x: Float[Tensor, "B N S D"], path: tuple[int, ...]
) -> bool:
    """Return True if the kernels support these features at every stage, and no module is wrapped."""
    stages = (Segments.of(before, after, config.segments) for before, after in pairwise(path))
    fits = all(segments.longest <= LARGEST_ON_CHIP for segments in stages)
    fits &= all(in_range(level.epsilon, config.transport) for level in config.active_levels)
    return on_gpu(x) and x.dtype != torch.float64 and fits and config.cost_dim <= MAX_COST_DIM and _unwrapped(modules)


def _unwrapped(modules: StageModules) -> bool:
    """Return True if calling the modules only applies their weights: no hooks, adapters or offloading."""
    return all(
        type(module) in (nn.Sequential, nn.GELU, Linear, LayerNorm, Metric)
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for part in (modules.metric, modules.gate)
        for module in part.modules()
    )
