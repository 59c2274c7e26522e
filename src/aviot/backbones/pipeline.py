"""Opening of a video: its frames are encoded chunk by chunk while later ones are still decoded.

Chunks are those of `Backbone.encode`, so that features are the same to the bit as of a video that was read first.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from aviot.backbones.base import Backbone, EncodedVideo
from aviot.engine.base import Stopwatch
from aviot.video import Video
from aviot.video.background import BackgroundReading
from aviot.video.frames import Frames, Progress


@dataclass(frozen=True)
class Span:
    """Something that ran, from one second of the clock `time.perf_counter` to another."""

    name: str
    start: float
    end: float


@dataclass
class Trace:
    """What ran when; `waits` makes each span last until the device has done its work."""

    spans: list[Span] = field(default_factory=list)
    waits: bool = True

    @contextmanager
    def span(self, name: str, device: torch.device | None = None) -> Iterator[None]:
        """Record a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.waits and device is not None and device.type == "cuda":
                torch.cuda.synchronize(device)
            self.spans.append(Span(name, start, time.perf_counter()))


def open_video(
    backbone: Backbone,
    read: Callable[..., Video],
    encode: Callable[[Video], EncodedVideo],
    watch: Stopwatch,
    trace: Trace | None = None,
) -> EncodedVideo:
    """Read a video by `read`, which takes `progress`, and encode it meanwhile; by `encode` where it has no chunks.

    The watch's "decode" lasts until the last frame has arrived, "encode" from then until the last is encoded.
    """
    start = watch.now()
    watch.report("decode")
    trace = trace or Trace(waits=False)
    chunks = _Chunks(backbone, encode, trace)

    def traced(progress: Progress) -> Video:
        with trace.span("decode"):
            return read(progress=progress)

    with BackgroundReading(traced) as reading:
        frames, count, ended = None, 0, False
        while not ended:
            frames, count, ended = reading.arrivals.wait(frames, count)
            if not ended and frames is not None:
                chunks.encode(frames, count)
        video = reading.result()
    read_by = time.perf_counter()
    watch.spent["decode"] = 1000 * (read_by - start)
    watch.report("encode")
    encoded = chunks.finish(video)
    watch.spent["encode"] = 1000 * (watch.now() - read_by)
    return encoded


class _Chunks:
    """The features of a video's first frames, as far as they have been encoded."""

    def __init__(self, backbone: Backbone, encode: Callable[[Video], EncodedVideo], trace: Trace) -> None:
        self._backbone, self._encode_whole, self._trace = backbone, encode, trace
        self._at_once = backbone.frames_at_once
        self._frames: Frames | None = None
        self._done: list[torch.Tensor] = []

    def encode(self, frames: Frames, count: int) -> None:
        """Encode the chunks that are complete in the first `count` of these frames."""
        if self._at_once is None:
            return
        if frames is not self._frames:  # frames were sampled anew
            self._frames, self._done = frames, []
        while (len(self._done) + 1) * self._at_once <= count:
            first = len(self._done) * self._at_once
            self._append(frames[first : first + self._at_once])

    def _append(self, frames: Frames) -> None:
        with self._trace.span("encode", self._backbone.device):
            self._done.append(self._backbone.encode_chunk(frames))

    def finish(self, video: Video) -> EncodedVideo:
        """Return the features of the whole video."""
        if self._at_once is None:
            with self._trace.span("encode", self._backbone.device):
                return self._encode_whole(video)
        self.encode(video.frames, len(video))
        if (first := len(self._done) * self._at_once) < len(video):
            self._append(video.frames[first:])
        return self._backbone.encoded_from(video, self._done)
