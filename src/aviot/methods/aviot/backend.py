"""Which way a compression takes: kernels on a GPU, plain torch everywhere else."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.config import CompressorConfig
from aviot.methods.aviot.layers import LayerNorm, Linear
from aviot.methods.aviot.metric import Metric
from aviot.methods.aviot.segments import Segments
from aviot.methods.aviot.stage import StageModules
from aviot.ot.device import LARGEST_ON_CHIP, in_range, on_gpu

WIDEST = 256  # transport space whose tile fits in a multiprocessor's registers


def kernels_serve(
    config: CompressorConfig, modules: StageModules, x: Float[Tensor, "B N S D"], path: tuple[int, ...]
) -> bool:
    """Whether the kernels take features of this kind and size at every stage, and modules that nobody has wrapped."""
    stages = (Segments.of(before, after, config.segments) for before, after in pairwise(path))
    fits = all(segments.longest <= LARGEST_ON_CHIP for segments in stages)
    fits &= all(in_range(level.epsilon, config.transport) for level in config.active_levels)
    return on_gpu(x) and x.dtype != torch.float64 and fits and config.cost_dim <= WIDEST and _plain(modules)


def _plain(modules: StageModules) -> bool:
    """True if calling the modules does nothing but what their weights say: no hooks, adapters or offloading."""
    return all(
        type(module) in (nn.Sequential, nn.GELU, Linear, LayerNorm, Metric)
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for part in (modules.metric, modules.gate)
        for module in part.modules()
    )
