"""Settings and launch of the allocation."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.config import Pilot, TransportConfig
from aviot.methods.aviot.allocation import NEGLIGIBLE, pilot_memory
from aviot.methods.aviot.kernels.allocation.forward import allocate_budgets
from aviot.methods.aviot.segments import Segments
from aviot.ot.sinkhorn import block


@dataclass(frozen=True)
class AllocationSettings:
    """The settings of the pilot and of the allocation at one training step."""

    epsilon: float
    transport: TransportConfig
    pilot: Pilot
    relevance_weight: float  # alpha_q
    temperature: float  # tau


def allocate(
    placed: Float[Tensor, "B regions N C"],
    relevance: Float[Tensor, "B N"] | None,
    segments: Segments,
    supports: int,
    settings: AllocationSettings,
) -> Int[Tensor, "B M"]:
    """Return each segment's supports; the first region is the whole frame. NaN still gives budgets that add up."""
    epsilon, config = settings.epsilon, settings.transport
    batch, regions, frames, width = placed.shape
    budgets = torch.empty((batch, segments.count), dtype=torch.long, device=placed.device)
    allocate_budgets[(batch,)](
        placed,
        placed if relevance is None else relevance,
        budgets.new_full((), settings.relevance_weight, dtype=torch.float64),
        budgets.new_full((), settings.temperature, dtype=torch.float64),
        budgets,
        regions,
        frames,
        supports,
        segments.longest,
        segments.full,
        segments.count,
        width,
        COST_LIMIT=config.cost_bound * epsilon,
        STABILIZER=config.stabilizer,
        MEMORY=pilot_memory(epsilon, config, settings.pilot) / epsilon,
        NEGLIGIBLE=NEGLIGIBLE,
        ASKED=relevance is not None,
        MB=block(segments.count),
        NB=block(segments.longest),
        KB=block(supports + 1),
        CB=block(width),
        num_warps=8,
    )
    return budgets
