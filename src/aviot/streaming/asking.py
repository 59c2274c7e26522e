"""A stream's memory for one question: supports that matter little to it merge before the method sees them.

A method that hears the question shares few supports out among many. Where the memory is far larger than the budget, it
answers better from a memory of twice the budget, in which what the question is not about has merged (docs/log.md,
2026-11-19, streams on a GPU). Merging two supports then costs exp(SHARPNESS z) times as much, z the larger of their
standardised relevances to the question.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aviot.streaming.bank import MIN_SUPPORTS, RECENT_SHARE, BankView, SupportBank
from aviot.streaming.records import FrameRange

PER_SUPPORT = 2  # supports of the memory that are left for each one of the budget
SHARPNESS = 2.0
LEAST_DEVIATION = 1e-9  # of relevance; below, all supports are alike


class QuestionBank(SupportBank):
    """A bank of another bank's supports, whose merges cost more the more relevant the supports are to a question."""

    def __init__(self, capacity: int, view: BankView, relevance: Float[Tensor, "N"]) -> None:
        super().__init__(capacity, max(1, capacity // RECENT_SHARE), view.tensors)
        values = relevance.double().cpu().numpy()
        weights = np.exp(SHARPNESS * (values - values.mean()) / max(float(values.std()), LEAST_DEVIATION))
        counts = np.array([record.count for record in view.records])
        self._firsts = np.array([record.first for record in view.records])
        self._sums = np.concatenate(([0.0], np.cumsum(counts * weights)))
        self.add(view.tensors, view.records)

    def _costs(self) -> NDArray[np.float64]:
        """Return the bank's own costs, weighted by the question."""
        own = super()._costs()
        weights = np.array([self._weight(record) for record in self._records[: len(own) + 1]])
        return own * np.maximum(weights[:-1], weights[1:])

    def _weight(self, record: FrameRange) -> float:
        """Return the mean weight of the frames behind a support."""
        first = np.searchsorted(self._firsts, record.first)
        after = np.searchsorted(self._firsts, record.last, side="right")
        return float(self._sums[after] - self._sums[first]) / record.count


def merged_for_question(view: BankView, relevance: Float[Tensor, "N"], supports: int) -> BankView:
    """Return at most twice as many supports as the budget has; a memory that is no larger is left as it is."""
    left = max(MIN_SUPPORTS, PER_SUPPORT * supports)
    return view if left >= len(view) else QuestionBank(left, view, relevance).view()
