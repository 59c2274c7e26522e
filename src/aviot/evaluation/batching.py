"""Who asks what, and what is asked together: a function of the items and the configuration alone.

Neither a kill nor the number of processes changes which questions share a batch, and so neither can change an answer.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aviot.evaluation.config import Setting
from aviot.evaluation.item import Item
from aviot.evaluation.reading import Items
from aviot.utils.launcher import World

Key = tuple[int, str]
"""An item's number and a setting's name: what there is one row of."""


@dataclass(frozen=True)
class Shard:
    """One process of several."""

    rank: int = 0
    processes: int = 1

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> "Shard":
        """Return this process's shard, by the variables of whatever started it."""
        world = World.here(environment)
        return cls(world.rank, world.processes)


@dataclass(frozen=True)
class Batch:
    """Items that are asked together, of one video, with one setting."""

    items: tuple[int, ...]
    setting: Setting

    @property
    def keys(self) -> tuple[Key, ...]:
        """Its rows."""
        return tuple((item, self.setting.name) for item in self.items)


@dataclass(frozen=True)
class Visit:
    """A video, encoded once, and everything that is asked about it; `name` is what its items call it."""

    video: Path
    name: str
    batches: tuple[Batch, ...]

    def without(self, done: frozenset[Key]) -> "Visit":
        """The batches of which something is missing."""
        return replace(self, batches=tuple(batch for batch in self.batches if not done.issuperset(batch.keys)))


def plan(items: Items, settings: Sequence[Setting], size: int) -> list[Visit]:
    """The visits of a source's items."""
    return plan_items(items.items, items.folder, settings, size)


def plan_items(items: Sequence[Item], folder: Path, settings: Sequence[Setting], size: int) -> list[Visit]:
    """A visit for each video, in the order in which they come up, with its questions `size` at a time."""
    by_video: dict[Path, list[int]] = {}
    for number, item in enumerate(items):
        by_video.setdefault(folder / item.video, []).append(number)
    return [
        Visit(video, items[numbers[0]].video, tuple(Batch(c, s) for s in settings for c in _chunks(numbers, size)))
        for video, numbers in by_video.items()
    ]


def share(visits: Sequence[Visit], shard: Shard) -> Sequence[Visit]:
    """The visits of one process; they do not depend on what has been done."""
    return visits[shard.rank :: shard.processes]


def _chunks(numbers: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(numbers), size):
        yield tuple(numbers[first : first + size])
