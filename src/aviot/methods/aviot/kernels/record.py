"""A stage's plans as kernels keep them."""

from dataclasses import dataclass

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.layout import Layout


def pitch_of(layout: Layout) -> int:
    """The distance between rows in memory: a multiple of 16, so that they are read four numbers at a time."""
    return 16 * triton.cdiv(layout.segments.longest, 16)


@dataclass(frozen=True)
class PlanRecord:
    """Rows, mass and entropy of every region of every granularity, one after the other, coarse to fine."""

    rows: Float[Tensor, "B regions K n"]  # `pitch_of` apart
    mass: Float[Tensor, "B regions K"]
    entropy: Float[Tensor, "B regions K"]  # of each row, over log N

    @classmethod
    def empty(cls, layout: Layout, regions: int) -> "PlanRecord":
        """Room for it."""
        shape = (len(layout.budgets), regions, layout.supports)
        rows = torch.empty((*shape, pitch_of(layout)), device=layout.device)
        return cls(
            rows[..., : layout.segments.longest],
            torch.empty(shape, device=layout.device),
            torch.empty(shape, device=layout.device),
        )
