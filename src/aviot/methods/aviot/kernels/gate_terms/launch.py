"""Launches of the gate's sums, with gradients."""

import math
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.gate_terms.backward import gate_sums_backward
from aviot.methods.aviot.kernels.gate_terms.forward import gate_sums

BLOCK = 512  # gates of one step: supports times granularities of one patch


class GateMeans(torch.autograd.Function):
    """Sums over the gates [B,L+3]: variation before the division by its weights, the weights, each granularity's mean
    share, the mean of sum_l gamma log gamma. `change` is the patches' motion, without gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Float[Tensor, "B S K L"],
        change: Float[Tensor, "B S"],
        grid: tuple[int, int],
        scale: float,
    ) -> Float[Tensor, "B L+3"]:
        """Launch one program per patch."""
        gates = gates.contiguous()
        change = change.to(gates.dtype)
        ctx.save_for_backward(gates, change)
        batch, patches, supports, levels = gates.shape
        ctx.constants = {"SCALE": scale, "LEVELS": levels, "BLOCK": BLOCK}
        ctx.counts = (*grid, supports * levels)
        sums = gates.new_empty((batch, patches, levels + 3))
        gate_sums[(patches, batch)](gates, change, sums, *ctx.counts, **ctx.constants)
        return sums.sum(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Launch one program per block of a patch's gates."""
        gates, change = ctx.saved_tensors
        grad_gates = torch.empty_like(gates)
        batch, patches = gates.shape[:2]
        blocks = (patches, triton.cdiv(math.prod(gates.shape[2:]), BLOCK), batch)
        gate_sums_backward[blocks](gates, change, gradients[0].contiguous(), grad_gates, *ctx.counts, **ctx.constants)
        return grad_gates, None, None, None
