"""Launches of the gate, with gradients."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.config import GateConfig
from aviot.methods.aviot.kernels.gate.backward import gate_backward
from aviot.methods.aviot.kernels.gate.forward import gate_forward
from aviot.methods.aviot.statistics import BOUND, PER_BRANCH, SMALLEST_NORM, SMALLEST_RMS
from aviot.ot.sinkhorn import block

SUPPORTS = 64  # of one program
ROWS = 32  # supports of one step of the backward pass
PROGRAMS = 264  # two per multiprocessor; each writes one sum of the parameters' gradients


@dataclass(frozen=True)
class GateInputs:
    """The inputs of the gate's statistics, without gradient."""

    moments: Float[Tensor, "B S K L 4"]
    entropy: Float[Tensor, "B regions K"]  # of each support's distribution, over log N
    region_of_patch: Int[Tensor, "L S"]
    dim: int
    question: Float[Tensor, "B D"] | None


def gate_statistics(
    inputs: GateInputs, gate: nn.Sequential, config: GateConfig, *, decide: bool
) -> tuple[Float[Tensor, "B S K features"], Float[Tensor, "B S K L"]]:
    """Return the gate's statistics, and with `decide` its weights too (without gradient; else they are not set)."""
    moments, entropy, question, dim = inputs.moments, inputs.entropy, inputs.question, inputs.dim
    batch, patches, supports, levels, _ = moments.shape
    features = PER_BRANCH * levels
    statistics = moments.new_empty((batch, patches, supports, features))
    gates = moments.new_empty((batch, patches, supports, levels))
    norm, first, _, second = gate
    weights = (norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias)
    sizes: dict[str, Any] = {
        "KB": min(SUPPORTS, block(supports)),
        "FB": block(features),
        "HB": block(config.hidden),
        "LB": block(levels),
        "QB": block(dim),
    }
    gate_forward[(triton.cdiv(supports, sizes["KB"]), patches, batch)](
        moments,
        entropy,
        inputs.region_of_patch,
        moments if question is None else question,
        *(weight.detach().contiguous() for weight in weights),
        statistics,
        gates,
        patches,
        entropy.shape[1],
        supports,
        dim,
        LEVELS=levels,
        FEATURES=features,
        ASKED=question is not None,
        DECIDE=decide,
        HIDDEN=config.hidden,
        EPS=norm.eps,
        TEMPERATURE=config.temperature,
        GLOBAL_FLOOR=config.global_floor,
        SMALLEST_RMS=SMALLEST_RMS,
        SMALLEST_NORM=SMALLEST_NORM,
        BOUND=BOUND,
        **sizes,
    )
    return statistics, gates


class Gates(torch.autograd.Function):
    """gamma from the branches' moments, with the gradient of the gate's parameters, which come last."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: GateInputs,
        gate: nn.Sequential,
        config: GateConfig,
        *parameters: Tensor,
    ) -> Float[Tensor, "B S K L"]:
        """Compute statistics and gate in one launch."""
        statistics, gates = gate_statistics(inputs, gate, config, decide=True)
        ctx.save_for_backward(statistics, *parameters)
        ctx.eps, ctx.config = gate[0].eps, config
        return gates

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Sum the parameters' gradients in one pass; the programs' sums are added in a fixed order."""
        statistics, *parameters = ctx.saved_tensors
        features, levels = statistics.shape[-1], gradients[0].shape[-1]
        count = statistics.numel() // features
        sizes = [parameter.numel() for parameter in parameters]
        sums = statistics.new_empty((min(PROGRAMS, triton.cdiv(count, ROWS)), sum(sizes)))
        gate_backward[(len(sums),)](
            statistics,
            gradients[0].contiguous(),
            *(parameter.float().contiguous() for parameter in parameters),
            sums,
            count,
            FEATURES=features,
            HIDDEN=ctx.config.hidden,
            LEVELS=levels,
            EPS=ctx.eps,
            TEMPERATURE=ctx.config.temperature,
            GLOBAL_FLOOR=ctx.config.global_floor,
            RB=ROWS,
            FB=block(features),
            HB=block(ctx.config.hidden),
            LB=block(levels),
            num_stages=1,
        )
        totals = sums.sum(0).split(sizes)
        shaped = (total.view_as(parameter) for total, parameter in zip(totals, parameters, strict=True))
        return None, None, None, *shaped
