"""The loss of a global batch, however it is divided over processes and micro steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aviot.data import Batch
from aviot.data.collate import IGNORED
from aviot.methods.aviot import Compression


class TrainingStopped(RuntimeError):
    """A run that ended itself rather than spoil its weights, why, and on which examples."""


@dataclass(frozen=True)
class Totals:
    """What the examples of one optimizer step, of all processes, add up to."""

    tokens: int  # supervised
    examples: int


@dataclass(frozen=True)
class Losses:
    """A micro batch's part of its global batch's loss; the parts of all micro batches and processes add up to it."""

    lm: Tensor
    transport: Tensor
    total: Tensor


def supervised(batch: Batch) -> int:
    """Tokens that are predicted: those with a label, of which a sequence's first has nothing before it."""
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def losses_of(out: Any, batch: Batch, totals: Totals, weight: float) -> Losses:
    """L = sum of token losses / tokens + weight · sum of objectives / examples, over the global batch.

    The model gives means over the micro batch, which are weighted here by what they are means of.
    """
    lm = out.lm_loss * (supervised(batch) / totals.tokens)
    transport = out.transport_loss * (len(batch["ids"]) / totals.examples)
    return Losses(lm, transport, lm + weight * transport)


def require_finite(losses: Losses, batch: Batch, step: int, compressions: Sequence[Compression]) -> None:
    """End a run whose loss is no number, before it reaches the weights."""
    if torch.isfinite(losses.total):
        return
    raise TrainingStopped(
        f"step {step}: the loss is not finite (language model {losses.lm.item()}, transport {losses.transport.item()}"
        f"{_first_complaint(compressions)}) on {described(batch)}. The last checkpoint is whole: look at these "
        "records and their videos, or lower the learning rate, then --resume"
    )


def _first_complaint(compressions: Sequence[Compression]) -> str:
    """What the compressor found not to be finite; on a GPU it says so only when it is asked."""
    for compression in compressions:
        try:
            compression.check()
        except ValueError as error:
            return f"; {error}"
    return ""


def described(batch: Batch) -> str:
    """The examples of a batch: record, file, ratio."""
    rows = zip(batch["ids"], batch["where"], batch["ratios"], strict=True)
    return "; ".join(f"record {id!r} ({where}) at ratio {ratio:g}" for id, where, ratio in rows)
