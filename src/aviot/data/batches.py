"""Which positions each rank takes in each micro step, so that ranks wait little for each other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch.utils.data import Sampler

from aviot.data.cost import CostModel
from aviot.data.order import Order
from aviot.utils.values import as_whole, require_whole


@dataclass(frozen=True)
class BatchLayout:
    """How the examples of an optimizer step are divided: ranks x micro steps x examples at once."""

    global_batch: int
    micro_batch: int = 1
    ranks: int = 1
    rank: int = 0

    def __post_init__(self) -> None:
        require_whole(self, "global_batch", "micro_batch", "ranks")
        rank = as_whole(self.rank)
        if rank is None or not 0 <= rank < self.ranks:
            raise ValueError(f"rank must be from 0 to {self.ranks - 1}, got {self.rank!r}")
        at_once = self.micro_batch * self.ranks
        if self.global_batch % at_once:
            raise ValueError(
                f"global_batch must be a multiple of micro_batch x ranks = {self.micro_batch} x {self.ranks} = "
                f"{at_once}, got {self.global_batch}; {self.global_batch // at_once * at_once or at_once} would do"
            )

    @property
    def micro_steps(self) -> int:
        """Forward passes of a rank before the optimizer steps."""
        return self.global_batch // (self.micro_batch * self.ranks)


class StepBatches(Sampler[list[int]]):
    """A batch sampler: the positions of this rank's micro batches, from `start_step` up to `steps`.

    Step s takes positions s · global_batch to (s + 1) · global_batch, whatever the number of ranks. They are sorted by
    cost, dearest first, and dealt to the ranks, to and fro. So examples that run at the same time cost about the same,
    and so do the whole steps of two ranks; what does not fit into memory shows at a step's beginning; and a run on
    other machines, or one that goes on from a checkpoint, takes the same examples in the same step.
    """

    def __init__(self, order: Order, layout: BatchLayout, cost: CostModel, *, steps: int, start_step: int = 0) -> None:
        if not 0 <= start_step <= steps:
            raise ValueError(f"start_step must be from 0 to the {steps} steps of the run, got {start_step}")
        self.order = order
        self.layout = layout
        self.cost = cost
        self.steps = steps
        self.start_step = start_step

    def __len__(self) -> int:
        return (self.steps - self.start_step) * self.layout.micro_steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.start_step, self.steps):
            yield from self.step(step)

    def step(self, step: int) -> list[list[int]]:
        """This rank's micro batches of one optimizer step."""
        layout = self.layout
        positions = np.arange(step * layout.global_batch, (step + 1) * layout.global_batch)
        dearest_first = positions[np.argsort(-self.order.costs(positions, self.cost), kind="stable")]
        dealt = dearest_first.reshape(-1, layout.ranks)
        dealt[1::2] = dealt[1::2, ::-1]
        return dealt[:, layout.rank].reshape(layout.micro_steps, layout.micro_batch).tolist()
