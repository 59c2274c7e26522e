"""Videos of requests: read in a process of their own, encoded once, and kept within a number of bytes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from aviot.backbones.encoding import watched_encoder
from aviot.explain.pictures import Pictures, split_thumbnails
from aviot.serve.cache import ByteCache, SharedWork
from aviot.serve.disk import FeatureDisk
from aviot.serve.media import Media
from aviot.serve.metrics import Metrics
from aviot.serve.opened import Opened
from aviot.serve.progress import DECODING, ENCODING, VideoProgress
from aviot.serve.settings import Settings
from aviot.session import VideoLM, VideoSession
from aviot.video import Video, VideoError, read_isolated
from aviot.web.refusal import Refused

ENCODERS = {"cpu": 2}  # videos at a time, each on half of the processors; elsewhere one fills the device
READERS = 2  # processes at a time; each may take as much memory as its limits allow
MOST_STORING = 2  # videos that wait to be written to disk; further ones are not written

T = TypeVar("T")


class Abandoned(Exception):
    """Raised inside work that nobody waits for any more."""


class Worker:
    """Threads for one kind of work; further work waits in order, and is not begun once its request has left."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"aviot-{name}")

    async def __call__(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *arguments))

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def video_key(media: Media, sampling: Mapping[str, Any]) -> Hashable:
    """Return what the features of a video depend on beside the model: its content and how it is sampled."""
    return media.digest, tuple(sorted(sampling.items()))


class Videos:
    """Opens videos; at most `settings.ahead` that are not kept already are open at a time."""

    def __init__(self, lm: VideoLM, settings: Settings, metrics: Metrics) -> None:
        self.lm, self.settings, self.metrics = lm, settings, metrics
        self.kept: ByteCache[Opened] = ByteCache(settings.feature_bytes, lambda opened: opened.nbytes)
        self._shared: SharedWork[Opened] = SharedWork(settings.ahead)
        self._readers, self._storer = Worker("read", READERS), Worker("store")
        self._encoder = Worker("encode", ENCODERS.get(lm.backbone.device.type, 1))
        self._storing: set[asyncio.Task[None]] = set()
        self.progress: dict[Hashable, VideoProgress] = {}  # of the videos that are being opened
        self.encoded = 0  # number of videos that the encoder has run on
        folder = settings.feature_folder
        self._disk = None if folder is None else FeatureDisk(lm, folder, settings.disk_bytes)

    @asynccontextmanager
    async def opened(self, media: Media, sampling: Mapping[str, Any]) -> AsyncIterator[Opened]:
        """Yield a video, encoded now or before; requests for one video share the work."""
        key = video_key(media, sampling)
        held = self.kept.get(key)
        self.metrics.features.labels("miss" if held is None else "hit").inc()
        if held is not None:
            yield held
            self.kept.refresh(key)  # a method may have computed more that is kept with it
            return
        async with self._shared.shared(key, partial(self._open, key, media, sampling)) as opened:
            yield opened
            self.kept.refresh(key)

    def close(self) -> None:
        """Begin no more work."""
        self._readers.close()
        self._encoder.close()
        self._storer.close()

    async def _open(self, key: Hashable, media: Media, sampling: Mapping[str, Any]) -> Opened:
        opened = None if self._disk is None else await self._storer(self._disk.get, key)
        if opened is None:
            if media.is_known_by_hash:
                raise Refused(
                    HTTPStatus.NOT_FOUND,
                    "this video is not kept any more; upload it again",
                    code="video_not_kept",
                    field="messages",
                )
            opened = await self._made(key, media, sampling)
            if self._disk is not None and len(self._storing) < MOST_STORING:
                task = asyncio.create_task(self._storer(self._disk.put, key, opened))
                self._storing.add(task)
                task.add_done_callback(self._storing.discard)
        self.kept.put(key, opened)
        return opened

    async def _made(self, key: Hashable, media: Media, sampling: Mapping[str, Any]) -> Opened:
        """Read and encode a video; both end soon once nobody waits, so that their places are free."""
        progress, left = VideoProgress(), threading.Event()
        self.progress[key] = progress
        try:
            with self.metrics.stage("decode"):
                video, thumbnails = await self._readers(self._read, media, sampling, progress, left.is_set)
            with self.metrics.stage("encode"):
                session = await self._encoder(self._encode, video, progress, left.is_set)
        finally:
            left.set()
            if self.progress.get(key) is progress:
                del self.progress[key]
        self.encoded += 1
        return Opened(session, thumbnails)

    def _encode(self, video: Video, progress: VideoProgress, left: Callable[[], bool]) -> VideoSession:
        def tell(share: float) -> None:
            if left():
                raise Abandoned
            progress.tell(share)

        progress.begin(ENCODING)
        with watched_encoder(self.lm.backbone, len(video), tell):
            return self.lm.open(video)

    def _read(
        self, media: Media, sampling: Mapping[str, Any], progress: VideoProgress, left: Callable[[], bool]
    ) -> tuple[Video, Pictures | None]:
        backbone, limits = self.lm.backbone, self.settings.limits
        reader = partial(read_isolated, limits=limits.read, abandoned=left, progress=progress.tell)
        side = backbone.image_size
        transform = None if side is None else backbone.with_thumbnails(self.settings.thumbnail)
        progress.begin(DECODING)
        with media.as_path() as path:
            try:
                video = backbone.read(path, transform=transform, reader=reader, **sampling)
                video = replace(video, name=media.name)
            except VideoError as error:
                sentence = str(error).replace(str(path), media.name)
                raise Refused(
                    HTTPStatus.UNPROCESSABLE_ENTITY, sentence, code="video_not_read", field="messages"
                ) from error
        if video.duration > limits.video_seconds:
            sentence = (
                f"the video lasts {video.duration:,.0f} s; this server takes at most {limits.video_seconds:,.0f} s"
            )
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, code="video_too_long", field="messages")
        return (video, None) if side is None else split_thumbnails(video, side)
