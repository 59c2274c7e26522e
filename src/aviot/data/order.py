"""Order of training: the record, ratio and cost at each position of a run, and the batches of each rank.

A position is an example's number, counted from the start of the run over all epochs and ranks. Everything here is a
function of the seed and the position, so that a run can continue at any position without a replay.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from aviot.data.config import DataConfig
from aviot.data.corpus import Corpus
from aviot.data.shuffle import choice, replacement, shuffled
from aviot.utils.values import as_whole, require_whole

CHARACTERS_PER_TOKEN = 4.0
"""Average for English text, roughly."""

UNKNOWN_SECONDS = 40.0
"""Duration assumed for videos of unknown length: about the mean of LLaVA-Video-178K."""

TOKENS_PER_FRAME = 21.0
"""Cost of a frame whatever the ratio, in tokens of a 7B decoder in training: seven for its time in the prompt, fourteen
for the frozen encoder (729 patches · 2 operations · 0.43 G weights over 6 · 7.6 G)."""


@dataclass(frozen=True)
class CostModel:
    """Estimate of an example's training cost in decoder tokens, made before its video is opened.

    cost = tokens_per_support · ceil(T / ratio) + TOKENS_PER_FRAME · T + characters / 4, with T the number of sampled
    frames. A wrong estimate only changes how long ranks wait for each other.
    """

    fps: float
    max_frames: int
    tokens_per_support: int

    def estimate(
        self, characters: NDArray[np.int64], seconds: NDArray[np.float64], ratios: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the cost of each example."""
        known = np.where(np.isnan(seconds), UNKNOWN_SECONDS, seconds)
        frames = np.clip(np.ceil(known * self.fps), 1, self.max_frames)
        return (
            self.tokens_per_support * np.ceil(frames / ratios)
            + TOKENS_PER_FRAME * frames
            + characters / CHARACTERS_PER_TOKEN
        )


@dataclass(frozen=True, eq=False)
class Order:
    """Order of the records over all epochs: each epoch is a permutation of its own of all records."""

    corpus: Corpus
    config: DataConfig

    def epoch(self, position: int) -> int:
        """Return the number of complete epochs before this position."""
        return position // len(self.corpus)

    def records(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the records at these positions."""
        size = len(self.corpus)
        epochs, places = np.divmod(positions, size)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            numbers[inside] = shuffled(places[inside], size, self.config.seed, epoch)
        return numbers

    def record(self, position: int, attempt: int = 0) -> int:
        """Return the record at a position, or its `attempt`-th replacement if it cannot be loaded."""
        if attempt:
            return replacement(position, attempt, len(self.corpus), self.config.seed)
        return int(self.records(np.array([position]))[0])

    def ratios(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the ratio drawn for each position."""
        choices = np.asarray(self.config.ratios)
        return choices[choice(positions, len(choices), self.config.seed)]

    def ratio(self, position: int) -> float:
        """Return the ratio drawn for one position."""
        return float(self.ratios(np.array([position]))[0])

    def costs(self, positions: NDArray[np.int64], model: CostModel) -> NDArray[np.float64]:
        """Return the estimated cost of each position in decoder tokens."""
        characters, seconds = self.corpus.lengths(self.records(positions))
        return model.estimate(characters, seconds, self.ratios(positions))


@dataclass(frozen=True)
class BatchLayout:
    """Division of an optimizer step's examples: ranks x micro steps x micro batch."""

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
        """Forward passes of a rank per optimizer step."""
        return self.global_batch // (self.micro_batch * self.ranks)


class StepBatches(Sampler[list[int]]):
    """Batch sampler: the positions of this rank's micro batches, from `start_step` up to `steps`.

    Step s takes positions s · global_batch to (s + 1) · global_batch, whatever the number of ranks. They are sorted by
    cost, most expensive first, and dealt to the ranks in alternating direction. So examples that run at the same time
    cost about the same, and so do the whole steps of two ranks; a step that runs out of memory does so at its start;
    and a run on other machines, or one resumed from a checkpoint, takes the same examples in the same step.
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
        """Return this rank's micro batches of one optimizer step."""
        layout = self.layout
        positions = np.arange(step * layout.global_batch, (step + 1) * layout.global_batch)
        by_cost = positions[np.argsort(-self.order.costs(positions, self.cost), kind="stable")]
        dealt = by_cost.reshape(-1, layout.ranks)
        dealt[1::2] = dealt[1::2, ::-1]
        return dealt[:, layout.rank].reshape(layout.micro_steps, layout.micro_batch).tolist()
