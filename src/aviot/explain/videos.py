"""Videos that were handed to the app: read, encoded once, and kept while there is room."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from aviot.budget import Budget
from aviot.explain.build import build_report
from aviot.explain.model_info import ModelInfo
from aviot.explain.pictures import Pictures
from aviot.explain.study import Asking, read_with_pictures
from aviot.methods.registry import DEFAULT
from aviot.session import VideoLM, VideoSession
from aviot.video import ReadLimits, Video, read_isolated

READ_AT_ONCE = 2  # videos that are read at a time: each may take the memory of its limits
KEPT = 4  # videos whose features are kept: of 224 frames of a 7B, 750 MB each in float32


class UnknownVideo(ValueError):
    """A video that is not kept, or not any more."""


@dataclass
class Videos:
    """One model and the videos it has seen; one request at a time uses the model.

    Files are read in processes of their own, under `limits`, while other requests are answered.
    """

    lm: VideoLM
    max_new_tokens: int
    limits: ReadLimits = field(default_factory=ReadLimits)
    encoded: int = 0  # how often the vision tower was run
    _kept: OrderedDict[str, tuple[VideoSession, Pictures]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reading: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(READ_AT_ONCE))

    @cached_property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return ModelInfo.of(self.lm.backbone)

    def add(self, path: Path, name: str) -> dict[str, Any]:
        """Read and encode a file, unless the same one is kept already; says what is in it."""
        with path.open("rb") as file:
            number = hashlib.file_digest(file, "sha256").hexdigest()
        read = None if number in self._kept else self._read(path)
        with self._lock:
            if read is not None and number not in self._kept:
                video, pictures = read
                self._kept[number] = self.lm.open(video), pictures
                self.encoded += 1
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            session, _ = self._find(number)
            video = session.video
        return {
            "video": number,
            "name": name,
            "frames": len(video),
            "duration": video.duration,
            "notice": self.info.notice(video),
        }

    def _read(self, path: Path) -> tuple[Video, Pictures]:
        """Read a file while others use the model."""
        with self._reading:
            return read_with_pictures(self.lm.backbone, path, reader=partial(read_isolated, limits=self.limits))

    def ask(self, number: str, name: str, questions: Sequence[str], ratio: float) -> dict[str, Any]:
        """Return the page's data for questions about a kept video; nothing is encoded again."""
        with self._lock:
            session, pictures = self._find(number)
            asking = Asking(tuple(questions), Budget(ratio=ratio), DEFAULT, self.max_new_tokens)
            _, report = build_report(session, pictures, asking)
        return report | {"name": name}

    def _find(self, number: str) -> tuple[VideoSession, Pictures]:
        if number not in self._kept:
            raise UnknownVideo("this video is not kept any more; choose it again")
        self._kept.move_to_end(number)
        return self._kept[number]
