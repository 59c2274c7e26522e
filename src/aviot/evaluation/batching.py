"""Assignment of items to batches and of batches to ranks, as a function of the items and the configuration alone.

Interruptions and the number of processes do not change which questions share a batch, and so change no answer.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aviot.evaluation.config import Setting
from aviot.evaluation.item import Item
from aviot.utils.launcher import World

RowKey = tuple[int, str]
"""An item's index and a setting's name; a run has one result row per key."""


@dataclass(frozen=True)
class Shard:
    """The share of a run that one of several processes takes."""

    rank: int = 0
    processes: int = 1

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> "Shard":
        """Return this process's shard, from the launcher's environment variables."""
        world = World.here(environment)
        return cls(world.rank, world.processes)


@dataclass(frozen=True)
class ItemBatch:
    """Indices of items about one video that are asked together with one setting."""

    items: tuple[int, ...]
    setting: Setting

    @property
    def keys(self) -> tuple[RowKey, ...]:
        """Return the keys of its result rows."""
        return tuple((item, self.setting.name) for item in self.items)


@dataclass(frozen=True)
class VideoBatches:
    """All batches about one video, which is encoded once; `name` is the video as the items spell it."""

    video: Path
    name: str
    batches: tuple[ItemBatch, ...]

    def without(self, done: frozenset[RowKey]) -> "VideoBatches":
        """Return the batches that have at least one row missing."""
        return replace(self, batches=tuple(batch for batch in self.batches if not done.issuperset(batch.keys)))


def batch_by_video(
    items: Sequence[Item], folder: Path, settings: Sequence[Setting], batch_size: int
) -> list[VideoBatches]:
    """Return the batches of each video, in order of first appearance; relative video paths start at `folder`."""
    by_video: dict[Path, list[int]] = {}
    for index, item in enumerate(items):
        by_video.setdefault(folder / item.video, []).append(index)
    return [
        VideoBatches(
            video,
            items[indices[0]].video,
            tuple(ItemBatch(chunk, setting) for setting in settings for chunk in _chunks(indices, batch_size)),
        )
        for video, indices in by_video.items()
    ]


def select_shard(videos: Sequence[VideoBatches], shard: Shard) -> Sequence[VideoBatches]:
    """Return the videos of one rank: every `processes`-th, whatever is done already."""
    return videos[shard.rank :: shard.processes]


def _chunks(indices: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(indices), size):
        yield tuple(indices[first : first + size])
