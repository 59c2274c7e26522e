"""Limits of the server, each of which a request can meet with a status and a sentence of its own."""

from dataclasses import dataclass, field
from pathlib import Path

from aviot.budget import AutoBudget, Budget
from aviot.methods import registry
from aviot.methods.registry import DEFAULT
from aviot.request import MAX_NEW_TOKENS
from aviot.utils.values import as_whole, require_positive, require_whole
from aviot.video.checks import ReadLimits


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on requests; sizes in bytes, times in seconds.

    `upload_bytes` is the largest request, and `uploads_bytes` all requests' bodies that are held at a time. `frames` is
    the largest number of frames that a request may choose, `video_seconds` the longest video, `new_tokens` the longest
    answer. At most `queue` requests are waited for or worked on; each waits at most `wait_seconds` for its turn, and
    has its whole answer after `answer_seconds`.
    """

    upload_bytes: int = 128_000_000
    uploads_bytes: int = 512_000_000
    frames: int = 1024
    video_seconds: float = 4 * 3600.0
    new_tokens: int = 2048
    queue: int = 128
    wait_seconds: float = 120.0
    answer_seconds: float = 300.0
    read: ReadLimits = field(default_factory=ReadLimits)

    def __post_init__(self) -> None:
        require_whole(self, "upload_bytes", "uploads_bytes", "frames", "new_tokens", "queue")
        require_positive(self, "video_seconds", "wait_seconds", "answer_seconds")
        if self.uploads_bytes < self.upload_bytes:
            raise ValueError(f"uploads_bytes must be at least upload_bytes ({self.upload_bytes:,})")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The model and method that the server answers with, and the sources of its videos; sizes in bytes.

    Videos are read below `media_folder`, if there is one, and fetched from other machines only with `allow_remote`.
    `feature_bytes` and `token_bytes` bound the encoder features and the compressed tokens that are kept in memory;
    `feature_folder` keeps features on disk too, up to `disk_bytes`. `method`, `budget` (None: the checkpoint's) and
    `max_new_tokens` are those of requests that name none. `ahead` is the number of videos that are opened while the
    engine is busy with others. At most `streams` streams are open, each with a memory of at most `stream_bytes`; one is
    given up when it was neither fed nor asked for `stream_seconds`. `report_bytes` bounds the explanations that are
    kept, `thumbnail` is the longer side of their pictures in pixels.
    """

    name: str
    limits: Limits = field(default_factory=Limits)
    method: str = DEFAULT
    budget: Budget | AutoBudget | None = None
    max_new_tokens: int = MAX_NEW_TOKENS
    media_folder: Path | None = None
    allow_remote: bool = False
    feature_bytes: int = 2_000_000_000
    token_bytes: int = 500_000_000
    feature_folder: Path | None = None
    disk_bytes: int = 20_000_000_000
    ahead: int = 4
    explanations: int = 1000
    report_bytes: int = 100_000_000
    thumbnail: int = 192
    streams: int = 8
    stream_bytes: int = 500_000_000
    stream_seconds: float = 600.0

    def __post_init__(self) -> None:
        registry.check_name(self.method)
        require_whole(self, "max_new_tokens", "feature_bytes", "token_bytes", "disk_bytes", "ahead", "explanations")
        require_whole(self, "stream_bytes", "report_bytes", "thumbnail")
        require_positive(self, "stream_seconds")
        if as_whole(self.streams) is None or self.streams < 0:
            raise ValueError(f"streams must be a whole number, 0 for none, got {self.streams!r}")
        if self.media_folder is not None and not self.media_folder.is_dir():
            raise ValueError(f"{self.media_folder} is not a folder; name the folder that has the videos")
