"""The app's videos: read, encoded once, and cached."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from aviot.budget import Budget
from aviot.explain.outputs import build_report
from aviot.explain.pictures import Pictures, read_with_pictures
from aviot.explain.study import Asking, ModelInfo
from aviot.methods.registry import DEFAULT
from aviot.session import VideoLM, VideoSession
from aviot.video import ReadLimits, Video, read_isolated

CONCURRENT_READS = 2  # each may take as much memory as its limits allow
CACHED = 4  # videos; features of 224 frames of a 7B take 750 MB each in float32


class UnknownVideo(ValueError):
    """Raised for a video that is not in the cache, or not any more."""


@dataclass
class Videos:
    """One model and a cache of encoded videos; one request at a time uses the model.

    Files are read in separate processes, under `limits`, while other requests are answered.
    """

    lm: VideoLM
    max_new_tokens: int
    limits: ReadLimits = field(default_factory=ReadLimits)
    method: str = DEFAULT
    encoded: int = 0  # number of runs of the vision encoder
    _cache: OrderedDict[str, tuple[VideoSession, Pictures]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reading: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(CONCURRENT_READS))

    @cached_property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return ModelInfo.of(self.lm.backbone)

    def add(self, path: Path, name: str) -> dict[str, Any]:
        """Read and encode a file, unless it is cached already; return a description of it."""
        with path.open("rb") as file:
            key = hashlib.file_digest(file, "sha256").hexdigest()
        read = None if key in self._cache else self._read(path)
        with self._lock:
            if read is not None and key not in self._cache:
                video, pictures = read
                self._cache[key] = self.lm.open(video), pictures
                self.encoded += 1
                while len(self._cache) > CACHED:
                    self._cache.popitem(last=False)
            session, _ = self._find(key)
            video = session.video
        return {
            "video": key,
            "name": name,
            "frames": len(video),
            "duration": video.duration,
            "notice": self.info.notice(video),
        }

    def _read(self, path: Path) -> tuple[Video, Pictures]:
        """Read a file while other requests use the model."""
        with self._reading:
            return read_with_pictures(self.lm.backbone, path, reader=partial(read_isolated, limits=self.limits))

    def ask(self, key: str, name: str, questions: Sequence[str], ratio: float) -> dict[str, Any]:
        """Return the page's data for questions about a cached video, without encoding it again."""
        with self._lock:
            session, pictures = self._find(key)
            asking = Asking(tuple(questions), Budget(ratio=ratio), self.method, self.max_new_tokens)
            _, report = build_report(session, pictures, asking)
        return report | {"name": name}

    def _find(self, key: str) -> tuple[VideoSession, Pictures]:
        if key not in self._cache:
            raise UnknownVideo("this video is not kept any more; upload it again")
        self._cache.move_to_end(key)
        return self._cache[key]
