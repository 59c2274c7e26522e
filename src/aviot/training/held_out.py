"""The loss on held-out records while training: every record once, the same ratio for it each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from aviot.data import Batch, BatchLayout, VideoDataset
from aviot.training.loss import Totals, losses_of, supervised

Loader = Callable[[VideoDataset, list[list[int]]], DataLoader]
Forward = Callable[[Batch], Any]  # a batch to the model's output
Reduce = Callable[[torch.Tensor], torch.Tensor]  # sums over processes

_ALONE = Totals(1, 1)  # sums, not means


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out examples, dealt to the processes one by one.

    All processes make the same number of forward passes, which sharded models need: one that has no example left
    repeats another, and the repetition does not count. Nor does an example in the place of one that cannot be loaded.
    """

    dataset: VideoDataset
    limit: int | None
    layout: BatchLayout
    loader: Loader

    def __len__(self) -> int:
        return len(self.dataset) if self.limit is None else min(self.limit, len(self.dataset))

    def batches(self) -> Iterator[tuple[Batch, bool]]:
        """Yield this process's batches of one example, and whether each counts."""
        places = range(self.layout.rank, _rounded_up(len(self), self.layout.ranks), self.layout.ranks)
        loaded = self.loader(self.dataset, [[place % len(self)] for place in places])
        for place, batch in zip(places, loaded, strict=True):
            yield batch, place < len(self) and not batch["failures"]

    def losses(self, forward: Forward, reduce: Reduce, weight: float, device: torch.device) -> dict[str, float]:
        """Return the loss and its parts, over all processes: the training loss of all examples as one global batch."""
        sums = torch.zeros(4, dtype=torch.float64, device=device)
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for batch, counts in self.batches():
                parts = losses_of(forward(batch), batch, _ALONE, weight)
                row = [parts.lm, parts.transport, supervised(batch), len(batch["ids"])]
                if counts:
                    sums += torch.stack([torch.as_tensor(value, device=device).double() for value in row])
        lm, transport, tokens, examples = reduce(sums).tolist()
        lm, transport = lm / max(tokens, 1), transport / max(examples, 1)
        return {
            "held_out_loss": lm + weight * transport,
            "held_out_lm_loss": lm,
            "held_out_transport_loss": transport,
            "held_out_examples": examples,
        }


def _rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
