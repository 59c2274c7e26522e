"""Configuration of training data."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aviot.config import TRAINING_RATIOS
from aviot.utils.values import as_tuple, as_whole, numbers, require_choice, require_fraction, require_whole

BadRecords = Literal["refuse", "skip"]


@dataclass(frozen=True)
class DataConfig:
    """Location and order of the training records, and tolerance for unusable ones.

    `records` is a JSON array, a JSONL file or a YAML list of such files; `video_root` is the folder that relative
    video paths start from (None: the folder of the file that names them). `absolute_paths` decides which absolute paths
    outside that folder are accepted: true, all with the suffix of a video file; false, none; a list, those below these
    folders. `bad_records` decides whether invalid records end the run before it starts ("refuse") or are left out with
    a warning ("skip"). An example that cannot be loaded is replaced, by at most `attempts` others in a row; the run
    ends once at least `min_failures` examples and more than `max_failed_share` of all tried have failed. An example of
    more than `max_tokens` tokens (None: no limit), `tokens_per_support` of them per support, counts as one that cannot
    be loaded. `index_folder` holds the indexes of record files (None: the user's cache directory).
    """

    records: str
    video_root: str | None = None
    absolute_paths: bool | Sequence[str] = True
    seed: int = 0
    ratios: Sequence[float] = TRAINING_RATIOS
    bad_records: BadRecords = "refuse"
    attempts: int = 16
    min_failures: int = 32
    max_failed_share: float = 0.05
    max_tokens: int | None = None
    tokens_per_support: int = 210  # 14 rows of 14 and a separator
    index_folder: str | None = None

    def __post_init__(self) -> None:
        require_whole(self, "attempts", "min_failures", "tokens_per_support")
        require_fraction(self, "max_failed_share")
        require_choice(self, "bad_records", BadRecords)
        if self.max_tokens is not None:
            require_whole(self, "max_tokens")
        seed = as_whole(self.seed)
        if seed is None or not 0 <= seed < 2**63:
            raise ValueError(f"seed must be a whole number from 0 to 2**63 - 1, got {self.seed!r}")
        object.__setattr__(self, "seed", seed)
        ratios = numbers("ratios", as_tuple("ratios", self.ratios), "hold numbers above 1", lambda ratio: ratio > 1)
        if not ratios:
            raise ValueError("ratios is empty; give at least one, such as (4.0,)")
        object.__setattr__(self, "ratios", ratios)
        object.__setattr__(self, "absolute_paths", _absolute_paths(self.absolute_paths))
        for name in ("records", "video_root", "index_folder"):
            value = getattr(self, name)
            if value is None and name != "records":
                continue
            if not isinstance(value, str | Path) or not str(value):
                raise ValueError(f"{name} must be a path, got {value!r}")
            object.__setattr__(self, name, os.path.expanduser(value))


def _absolute_paths(value: object) -> bool | tuple[str, ...]:
    """Return the validated setting: true, false, or a tuple of absolute folders."""
    if isinstance(value, bool):
        return value
    folders = (value,) if isinstance(value, str | Path) else value
    if not isinstance(folders, Iterable) or not all(isinstance(folder, str | Path) for folder in folders):
        raise ValueError(f"absolute_paths must be true, false or a list of folders, got {value!r}")
    found = tuple(os.path.expanduser(folder) for folder in folders)
    relative = next((folder for folder in found if not os.path.isabs(folder)), None)
    if relative is not None:
        raise ValueError(f"absolute_paths must list absolute folders, such as /data/videos, got {relative!r}")
    return found
