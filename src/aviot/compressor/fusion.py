"""The gate: how much each granularity gives to every support at every position."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aviot.compressor.layers import LayerNorm, Linear
from aviot.compressor.statistics import PER_BRANCH
from aviot.config import GateConfig


def build_gate(levels: int, hidden: int) -> nn.Sequential:
    """LayerNorm, then two linear maps: 7 statistics a level to one logit a level."""
    return nn.Sequential(
        LayerNorm(PER_BRANCH * levels), Linear(PER_BRANCH * levels, hidden), nn.GELU(), Linear(hidden, levels)
    )


def gate_weights(
    gate: nn.Sequential, statistics: Float[Tensor, "B S K features"], config: GateConfig
) -> Float[Tensor, "B S K L"]:
    """gamma: softmax at temperature tau_g, with a floor of delta_G under the global branch (eq:supp_gate_floor)."""
    logits = gate(statistics)
    share = torch.softmax(logits / config.temperature, -1) * (1 - config.global_floor)
    return torch.cat((share[..., :1] + config.global_floor, share[..., 1:]), -1)


def introduce_regions(gates: Float[Tensor, "B S K L"], progress: float) -> Float[Tensor, "B S K L"]:
    """Interpolate with the global branch while the regional ones are being warmed up."""
    if progress == 1.0:
        return gates
    global_only = torch.zeros_like(gates)
    global_only[..., 0] = 1.0
    return progress * gates + (1 - progress) * global_only
