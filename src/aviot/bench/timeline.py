"""From a file to the first token: what ran when, beside each half alone and what the machine could do at best."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from aviot.backbones.base import EncodedVideo
from aviot.backbones.pipeline import Trace, open_video
from aviot.bench.compressor import Setup
from aviot.bench.pipeline import read_prompt
from aviot.bench.result import SpeedOfLight, Timeline
from aviot.bench.timing import CPU, measure
from aviot.budget import Budget
from aviot.engine.base import Stopwatch
from aviot.session import VideoLM
from aviot.video import Scaling, Video, read_video
from aviot.video.frames import Progress

GPU_PRODUCT, CPU_PRODUCT = 8192, 1024  # side of the square matrices whose product is timed


class _Way:
    """The way from one file to the first token with one method, in its parts."""

    def __init__(self, lm: VideoLM, path: Path, method: str, budget: Budget, sampling: dict[str, Any]) -> None:
        self.lm, self.path, self.sampling, self.budget = lm, path, sampling, budget
        self.method = lm.backbone.method(method)

    def read(self, progress: Progress | None = None) -> Video:
        """Decode and sample the file, and scale the frames; random weights of LLaVA-Video come without a processor."""
        if (side := self.lm.backbone.image_size) is not None:
            return read_video(self.path, transform=Scaling(side), progress=progress, **self.sampling)
        return self.lm.backbone.read(self.path, reader=partial(read_video, progress=progress), **self.sampling)

    def encode(self, video: Video) -> EncodedVideo:
        """Encode a video that was read."""
        return self.lm.open(video).encoded

    def overlapped(self, trace: Trace | None = None) -> None:
        """Encode while the file is decoded, as a session does, and go on."""
        backbone = self.lm.backbone
        self.first_token(open_video(backbone, self.read, self.encode, Stopwatch(backbone.device), trace), trace)

    def first_token(self, encoded: EncodedVideo, trace: Trace | None = None) -> None:
        """Compress for a question and read the prompt."""
        read_prompt(self.lm, encoded, self.method, self.budget, trace or Trace(waits=False))


@torch.inference_mode()
def measure_timeline(lm: VideoLM, path: Path, setup: Setup, *, method: str, ratio: float, **sampling: Any) -> Timeline:
    """Time the way from a file to the first token, overlapped and one part after the other, and its two halves alone.

    `sampling` is that of `VideoLM.open`. Raises ValueError for a method that refuses the model or the ratio.
    """
    way = _Way(lm, path, method, Budget(ratio=ratio), sampling)
    video = way.read()
    works: dict[str, Callable[[], object]] = {
        "overlapped": way.overlapped,
        "in turn": lambda: way.first_token(way.encode(way.read())),
        "decode": way.read,
        "model": lambda: way.first_token(way.encode(video)),
    }
    devices = {"decode": CPU}
    parts = {
        name: measure(work, devices.get(name, setup.device), warmup=setup.warmup, repeats=setup.repeats)
        for name, work in works.items()
    }
    trace, start = Trace(), time.perf_counter()
    way.overlapped(trace)
    spans = [(one.name, 1000 * (one.start - start), 1000 * (one.end - start)) for one in trace.spans]
    return Timeline(
        source=str(path),
        frames=len(video),
        pictures=video.total,
        method=way.method.name,
        ratio=ratio,
        parts=parts,
        spans=tuple(sorted(spans, key=lambda span: span[1])),
        limit_ms=max(parts["decode"].median_ms, parts["model"].median_ms),
        light=_speed_of_light(way, video, setup),
    )


def _speed_of_light(way: _Way, video: Video, setup: Setup) -> SpeedOfLight:
    """Count the operations and the weights' bytes, and measure how fast a large product is."""
    encoded = way.encode(video)
    side = GPU_PRODUCT if setup.device.type == "cuda" else CPU_PRODUCT
    factor = torch.randn(side, side, device=setup.device, dtype=setup.dtype)
    product = measure(lambda: factor @ factor, setup.device, warmup=2, repeats=5)
    return SpeedOfLight(
        operations={
            "encode": _operations(partial(way.encode, video)),
            "compress and prefill": _operations(partial(way.first_token, encoded)),
        },
        operations_per_second=2 * side**3 / (product.median_ms / 1000),
        weight_bytes=sum(weight.nbytes for weight in way.lm.backbone.model.parameters()),
        bytes_per_second=setup.bandwidth,
    )


def _operations(work: Callable[[], object]) -> int:
    """Return the floating-point operations of products, convolutions and attention, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
