"""The loss of a global batch, divided over processes and micro steps, and the same loss on held-out records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from aviot.data import Batch, BatchLayout, VideoDataset
from aviot.data.collate import IGNORED
from aviot.methods.aviot import Compression

MakeLoader = Callable[[VideoDataset, list[list[int]]], DataLoader]
Forward = Callable[[Batch], Any]  # from a batch to the model's output
Reduce = Callable[[Tensor], Tensor]  # sum over processes


class TrainingStopped(RuntimeError):
    """A run that ended before a non-finite value reached the weights; the message names the step and the examples."""


@dataclass(frozen=True)
class Totals:
    """Sums over all examples of one optimizer step, of all processes."""

    tokens: int  # supervised
    examples: int


@dataclass(frozen=True)
class Losses:
    """A micro batch's share of its global batch's loss; the shares of all micro batches and processes add up to it."""

    lm: Tensor
    transport: Tensor
    total: Tensor


def count_supervised(batch: Batch) -> int:
    """Return the number of predicted tokens: those with a label, except a sequence's first, which has no prefix."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def micro_batch_losses(out: Any, batch: Batch, totals: Totals, weight: float) -> Losses:
    """Return a micro batch's share of L = sum of token losses / tokens + weight · sum of objectives / examples.

    `totals` has the tokens and examples of the global batch. The model returns means over the micro batch, so each is
    multiplied by the micro batch's own count first.
    """
    lm = out.lm_loss * (count_supervised(batch) / totals.tokens)
    transport = out.transport_loss * (len(batch["ids"]) / totals.examples)
    return Losses(lm, transport, lm + weight * transport)


def require_finite(losses: Losses, batch: Batch, step: int, compressions: Sequence[Compression]) -> None:
    """Raise TrainingStopped for a loss that is NaN or infinite, before it reaches the weights."""
    if torch.isfinite(losses.total):
        return
    raise TrainingStopped(
        f"step {step}: the loss is not finite (language model {losses.lm.item()}, transport {losses.transport.item()}"
        f"{_first_nonfinite(compressions)}) on {describe_examples(batch)}. The last checkpoint is intact: check these "
        "records and their videos and resume the run, or start a new run with a lower learning rate in another output"
    )


def _first_nonfinite(compressions: Sequence[Compression]) -> str:
    """Return the compressor's first non-finite value in words; on a GPU it is only reported when `check` is called."""
    for compression in compressions:
        try:
            compression.check()
        except ValueError as error:
            return f"; {error}"
    return ""


def describe_examples(batch: Batch) -> str:
    """Return the record, file and ratio of each example of a batch."""
    rows = zip(batch["ids"], batch["where"], batch["ratios"], strict=True)
    return "; ".join(f"record {id!r} ({where}) at ratio {ratio:g}" for id, where, ratio in rows)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out examples, distributed over the processes; each is used once per pass, always at the same ratio.

    All processes run the same number of forward passes, which sharded models need: a process without an example left
    repeats another one, which is not counted. An example that replaces one that cannot be loaded is not counted either.
    """

    dataset: VideoDataset
    limit: int | None
    layout: BatchLayout
    loader: MakeLoader

    def __len__(self) -> int:
        return len(self.dataset) if self.limit is None else min(self.limit, len(self.dataset))

    def batches(self) -> Iterator[tuple[Batch, bool]]:
        """Yield this process's batches of one example, and for each whether it is counted."""
        ranks = self.layout.ranks
        padded = -(-len(self) // ranks) * ranks
        positions = range(self.layout.rank, padded, ranks)
        loaded = self.loader(self.dataset, [[position % len(self)] for position in positions])
        for position, batch in zip(positions, loaded, strict=True):
            yield batch, position < len(self) and not batch["failures"]

    def losses(self, forward: Forward, reduce: Reduce, weight: float, device: torch.device) -> dict[str, float]:
        """Return the training loss of all held-out examples as one global batch, and its parts, over all processes."""
        sums = torch.zeros(4, dtype=torch.float64, device=device)
        undivided = Totals(tokens=1, examples=1)  # gives sums instead of means
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for batch, is_counted in self.batches():
                parts = micro_batch_losses(forward(batch), batch, undivided, weight)
                row = [parts.lm, parts.transport, count_supervised(batch), len(batch["ids"])]
                if is_counted:
                    sums += torch.stack([torch.as_tensor(value, device=device).double() for value in row])
        lm, transport, tokens, examples = reduce(sums).tolist()
        lm, transport = lm / max(tokens, 1), transport / max(examples, 1)
        return {
            "held_out_loss": lm + weight * transport,
            "held_out_lm_loss": lm,
            "held_out_transport_loss": transport,
            "held_out_examples": examples,
        }
