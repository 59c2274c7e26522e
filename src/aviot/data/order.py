"""What comes at each position of a training run: which record, at which ratio, at about which cost.

A position counts examples from the run's first on, over all epochs and ranks. Everything here is a function of the seed
and the position, so a run goes on at any position as if it had come there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aviot.data.config import DataConfig
from aviot.data.corpus import Corpus
from aviot.data.cost import CostModel
from aviot.data.shuffle import choice, replacement, shuffled


@dataclass(frozen=True, eq=False)
class Order:
    """Epoch after epoch, each record once an epoch, in an order of the epoch's own."""

    corpus: Corpus
    config: DataConfig

    def epoch(self, position: int) -> int:
        """How often the whole set has been gone through before this position."""
        return position // len(self.corpus)

    def records(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the records at these positions."""
        size = len(self.corpus)
        epochs, places = np.divmod(positions, size)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            numbers[inside] = shuffled(places[inside], size, self.config.seed, epoch)
        return numbers

    def record(self, position: int, attempt: int = 0) -> int:
        """The record at a position, or the `attempt`-th that stands in for it when it cannot be loaded."""
        if attempt:
            return replacement(position, attempt, len(self.corpus), self.config.seed)
        return int(self.records(np.array([position]))[0])

    def ratios(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """The ratio drawn for each position."""
        choices = np.asarray(self.config.ratios)
        return choices[choice(positions, len(choices), self.config.seed)]

    def ratio(self, position: int) -> float:
        """The ratio drawn for one position."""
        return float(self.ratios(np.array([position]))[0])

    def costs(self, positions: NDArray[np.int64], model: CostModel) -> NDArray[np.float64]:
        """About how much work each position is, in tokens of the decoder."""
        characters, seconds = self.corpus.lengths(self.records(positions))
        return model.estimate(characters, seconds, self.ratios(positions))
