"""Training examples by position, and the count of those that could not be loaded."""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import Dataset

from aviot.data.checks import DataError, RecordError
from aviot.data.config import DataConfig
from aviot.data.corpus import Corpus, LocatedRecord
from aviot.data.feature_cache import FeatureCache, FeatureKeys
from aviot.data.order import Order
from aviot.data.record import Turn
from aviot.video import Video, VideoError

logger = logging.getLogger(__name__)

MAX_LISTED = 5
"""Failures that a message lists."""


class Tokens(Protocol):
    """A tokenized conversation: ids, labels and question spans."""

    @property
    def ids(self) -> list[int]:
        """Token ids, with one placeholder for the video."""

    @property
    def labels(self) -> list[int]:
        """Labels: the supervised ids, -100 elsewhere."""

    @property
    def questions(self) -> Sequence[tuple[int, int]]:
        """Spans of the questions: first token and one past the last."""


class Processor(Protocol):
    """Interface of a model's processor; `aviot.models.AviotProcessor` implements it."""

    def read(self, source: Any) -> Video:
        """Sample a video; VideoError if it cannot be read."""

    def pixels(self, frames: Any) -> Tensor:
        """Return frames as encoder input, [T,3,H,W]."""

    def encode_conversation(
        self, turns: Sequence[Turn], duration: float, times: Sequence[float], system: str | None = None
    ) -> Tokens:
        """Tokenize a conversation about a video; ValueError if it is invalid. `system` None: the default text."""


@dataclass(frozen=True)
class CachedFeatures:
    """A feature cache and the keys of its videos."""

    cache: FeatureCache
    keys: FeatureKeys


@dataclass(frozen=True, eq=False)
class Clip:
    """A sampled video: its frames, or its features if they were cached under `key`."""

    times: tuple[float, ...]
    duration: float
    pixels: Tensor | None  # uint8 [T,3,H,W], or another layout of the processor's
    features: Tensor | None  # [T,S,D]
    key: str | None
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # what is stored with the features

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Failure:
    """A record that could not be loaded, and the reason."""

    id: str
    where: str
    video: str
    reason: str

    def __str__(self) -> str:
        return f"{self.video} ({self.where}): {self.reason}"


@dataclass(frozen=True, eq=False)
class Example:
    """The example at one position of the run, with the failures of the records that it replaces."""

    position: int
    id: str
    where: str  # file, and line or element, of its record
    ratio: float
    tokens: Tokens
    clip: Clip
    failures: tuple[Failure, ...]


VisualTokens = Callable[[Clip, float], int]
"""The number of tokens of a video at a ratio, with those of the text between them."""


class VideoDataset(Dataset[Example]):
    """Map from positions of a run to examples, the same in every process.

    Positions have no end: those past the set's length belong to later epochs. A record that cannot be loaded is
    replaced by another, determined by the position, at the ratio of the position. `visual_tokens` counts a video's
    tokens (default: `tokens_per_support` for each support).
    """

    def __init__(
        self,
        corpus: Corpus,
        processor: Processor,
        config: DataConfig,
        *,
        features: CachedFeatures | None = None,
        visual_tokens: VisualTokens | None = None,
    ) -> None:
        self.corpus = corpus
        self.order = Order(corpus, config)
        self.processor = processor
        self.config = config
        self.features = features
        self.visual_tokens = visual_tokens or self._supports_alone

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, position: int) -> Example:
        failures: list[Failure] = []
        tried: set[int] = set()
        for attempt in range(self.config.attempts + 1):
            if (number := self.order.record(position, attempt)) in tried:
                continue
            tried.add(number)
            located = self.corpus[number]
            try:
                return self._load(position, located, tuple(failures))
            except (VideoError, RecordError, OSError) as error:
                failures.append(Failure(located.record.id, located.where, str(located.video), str(error)))
        raise DataError(
            f"position {position}: neither its record nor its {len(failures) - 1} replacements can be loaded; check "
            f"video_root, and that the videos are there{_listing(failures)}"
        )

    def _load(self, position: int, located: LocatedRecord, failures: tuple[Failure, ...]) -> Example:
        ratio = self.order.ratio(position)
        clip = self._clip(located.video)
        try:
            record = located.record
            tokens = self.processor.encode_conversation(record.turns, clip.duration, clip.times, record.system)
        except ValueError as error:
            raise RecordError(str(error)) from error
        self._check_length(len(tokens.ids), clip, ratio)
        return Example(position, located.record.id, located.where, ratio, tokens, clip, failures)

    def _clip(self, path: Path) -> Clip:
        key = None if self.features is None else self.features.keys.key(path)
        if self.features is not None and key is not None and (cached := self.features.cache.get(key)) is not None:
            return Clip(cached.times, cached.duration, None, cached.features, key, cached.extras)
        video = self.processor.read(path)
        return Clip(video.times, video.duration, self.processor.pixels(video.frames), None, key)

    def _supports_alone(self, clip: Clip, ratio: float) -> int:
        return self.config.tokens_per_support * max(1, math.ceil(len(clip) / ratio))

    def _check_length(self, text: int, clip: Clip, ratio: float) -> None:
        limit = self.config.max_tokens
        length = text - 1 + self.visual_tokens(clip, ratio)
        if limit is not None and length > limit:
            raise RecordError(f"it has {length:,} tokens at ratio {ratio:g}, more than max_tokens = {limit:,}")


class FailureTally:
    """Counter of the failures that the batches of a run report, kept in the training process.

    Failures travel with the example that replaced them, so that data loader workers share no state; a batch is counted
    when it is used. Each rank counts its own: sum `tried` and `failed` over ranks for a report.
    """

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._latest: deque[Failure] = deque(maxlen=MAX_LISTED)
        self.tried = 0
        self.failed = 0

    def observe(self, loaded: int, failures: Iterable[Failure]) -> None:
        """Count a batch of `loaded` examples and the failures of replaced ones; DataError if there are too many."""
        self.tried += loaded
        for failure in failures:
            self.tried += 1
            self.failed += 1
            self._latest.append(failure)
            logger.warning("skipped %s", failure)
        share = self._config.max_failed_share
        if self.failed >= self._config.min_failures and self.failed > share * self.tried:
            raise DataError(
                f"{self.failed} of {self.tried} examples could not be loaded, more than the {share:.1%} that "
                "max_failed_share allows; check video_root, and that all videos are there. The latest:"
                + _listing(self._latest)
            )


def _listing(failures: Iterable[Failure]) -> str:
    """Return the last failures for the end of a message, one per line."""
    return "".join(f"\n  {failure}" for failure in list(failures)[-MAX_LISTED:])
