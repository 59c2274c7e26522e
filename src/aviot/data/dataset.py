"""Examples by position: the record read, its video decoded or taken from the cache, its conversation in tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import Dataset

from aviot.data.config import DataConfig
from aviot.data.corpus import Corpus, Located
from aviot.data.errors import DataError, RecordError
from aviot.data.failures import Failure, listing
from aviot.data.feature_cache import FeatureCache
from aviot.data.feature_key import FeatureKeys
from aviot.data.order import Order
from aviot.data.record import Turn
from aviot.video import Video, VideoError


class Tokens(Protocol):
    """A conversation as token ids, what of them is supervised, and where its questions stand."""

    @property
    def ids(self) -> list[int]:
        """Token ids, with one placeholder for the video."""

    @property
    def labels(self) -> list[int]:
        """The ids that are supervised, -100 elsewhere."""

    @property
    def questions(self) -> Sequence[tuple[int, int]]:
        """First token of each question and one past its last."""


class Processor(Protocol):
    """What is asked of a model's processor; `aviot.models.AviotProcessor` is one."""

    def read(self, source: Any) -> Video:
        """Sample a video; VideoError if it cannot be."""

    def pixels(self, frames: Any) -> Tensor:
        """Frames as the encoder takes them, [T,3,H,W]."""

    def encode_conversation(
        self, turns: Sequence[Turn], duration: float, times: Sequence[float], system: str | None = None
    ) -> Tokens:
        """Encode a conversation about a video; ValueError if it cannot be. `system` None: the prompt's own text."""


@dataclass(frozen=True)
class CachedFeatures:
    """A feature cache and the names it keeps videos under."""

    cache: FeatureCache
    keys: FeatureKeys


@dataclass(frozen=True, eq=False)
class Clip:
    """A sampled video: its frames, or its features where they were cached under `key`."""

    times: tuple[float, ...]
    duration: float
    pixels: Tensor | None  # uint8 [T,3,H,W]
    features: Tensor | None  # [T,S,D]
    key: str | None

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True, eq=False)
class Example:
    """One position of the run, ready for a batch, with the failures that it stands in for."""

    position: int
    id: str
    where: str  # file and line or element of its record
    ratio: float
    tokens: Tokens
    clip: Clip
    failures: tuple[Failure, ...]


class VideoDataset(Dataset[Example]):
    """Maps a position of the run to its example; any process that asks for a position gets the same one.

    There is no end: positions past the set's length belong to its later epochs. A record that cannot be loaded is
    passed over for another, chosen by the position, at the ratio of the position.
    """

    def __init__(
        self, corpus: Corpus, processor: Processor, config: DataConfig, *, features: CachedFeatures | None = None
    ) -> None:
        self.corpus = corpus
        self.order = Order(corpus, config)
        self.processor = processor
        self.config = config
        self.features = features

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
            f"position {position}: neither its record nor the {len(failures) - 1} to stand in for it can be loaded; is "
            f"video_root right, and are the videos there?{listing(failures)}"
        )

    def _load(self, position: int, located: Located, failures: tuple[Failure, ...]) -> Example:
        ratio = self.order.ratio(position)
        clip = self._clip(located.video)
        try:
            record = located.record
            tokens = self.processor.encode_conversation(record.turns, clip.duration, clip.times, record.system)
        except ValueError as error:
            raise RecordError(str(error)) from error
        self._check_length(len(tokens.ids), len(clip), ratio)
        return Example(position, located.record.id, located.where, ratio, tokens, clip, failures)

    def _clip(self, path: Path) -> Clip:
        key = None if self.features is None else self.features.keys.key(path)
        if self.features is not None and key is not None and (kept := self.features.cache.get(key)) is not None:
            return Clip(kept.times, kept.duration, None, kept.features, key)
        video = self.processor.read(path)
        return Clip(video.times, video.duration, self.processor.pixels(video.frames), None, key)

    def _check_length(self, text: int, frames: int, ratio: float) -> None:
        limit = self.config.max_tokens
        length = text - 1 + self.config.tokens_per_support * max(1, math.ceil(frames / ratio))
        if limit is not None and length > limit:
            raise RecordError(f"it has {length:,} tokens at ratio {ratio:g}, more than max_tokens = {limit:,}")
