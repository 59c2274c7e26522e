"""Encoding of a stream's frames in small batches, by the same steps as a whole video's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aviot.backbones.base import Backbone, EncodedVideo
from aviot.methods.features import Structure
from aviot.session import VideoLM
from aviot.streaming.bank import FEATURES, BankView
from aviot.streaming.intake import QueuedFrame
from aviot.streaming.records import FrameRange
from aviot.video import PatchScaling, Picture, Video

NAME = "stream"
BATCH = 8  # frames encoded at a time: few, so that answers are up to date; a CPU is no faster with more


@dataclass(frozen=True)
class StreamShape:
    """Properties that all encoded frames of a stream share."""

    grid: tuple[int, int]
    tokens_per_frame: int
    structure: Structure
    merged: int  # frames that the encoder merges into one
    dtype: torch.dtype


@dataclass(frozen=True)
class ReadingDefaults:
    """A backbone's way to read videos: its scaling of frames, its rate, and the most frames that it samples."""

    transform: Callable[[Picture], Any]
    fps: float
    max_frames: int

    @classmethod
    def of(cls, backbone: Backbone) -> "ReadingDefaults":
        """Ask a backbone to read a video, and note what it asks of its reader."""
        found: list[ReadingDefaults] = []

        def note(source: Any, *, transform: Any, fps: float, max_frames: int, **_: Any) -> Video:
            found.append(cls(transform, fps, max_frames))
            return Video(np.zeros((0, 1, 1, 3), np.uint8), (), (), 0.0, fps, 0, NAME)

        backbone.read(None, reader=note)
        return found[0]


class FrameEncoder:
    """Scales and encodes frames of any size; all are scaled to the size of the first.

    Where a family's scaling depends on the length of a video, a stream counts as the longest one that it samples.
    """

    def __init__(self, lm: VideoLM) -> None:
        self.lm = lm
        self.defaults = ReadingDefaults.of(lm.backbone)
        self.merged = lm.backbone.merged_frames
        self.frame_size: tuple[int, int] | None = None  # of scaled frames
        self.shape: StreamShape | None = None
        self._scaling = self.defaults.transform
        if isinstance(self._scaling, PatchScaling):
            self._scaling = self._scaling.for_frames(self.defaults.max_frames)

    def resume(self, shape: StreamShape, frame_size: tuple[int, int]) -> None:
        """Go on with the size of an earlier run."""
        self.shape, self.frame_size = shape, frame_size

    def encode(
        self, frames: Sequence[QueuedFrame], first: int
    ) -> tuple[dict[str, Float[Tensor, "T S D"]], list[FrameRange]]:
        """Return features and extras by name, and a record of each encoded frame, counted from `first` on.

        Raises ValueError for features that are not finite.
        """
        pictures = np.stack([self._scaled(frame.picture) for frame in frames])
        times = tuple(frame.time for frame in frames)
        numbers = tuple(frame.number for frame in frames)
        video = Video(pictures, numbers, times, times[-1] - times[0], self.defaults.fps, len(frames), NAME)
        encoded = self.lm.open(video).encoded
        if not bool(torch.isfinite(encoded.features).all()):
            raise ValueError(
                f"the encoder's features of frames {numbers[0]} to {numbers[-1]} are not finite (NaN or infinity); "
                "look for them in the checkpoint's weights, and use bfloat16 or float32 where float16 overflows"
            )
        self.shape = StreamShape(
            encoded.grid, encoded.tokens_per_frame, encoded.structure, self.merged, encoded.features.dtype
        )
        firsts = numbers[:: self.merged]
        records = [
            FrameRange.frame(first + place, number, time)
            for place, (number, time) in enumerate(zip(firsts, encoded.times, strict=True))
        ]
        return {FEATURES: encoded.features, **encoded.extras}, records

    def _scaled(self, picture: Picture) -> Picture:
        """Scale a frame; one that would get another size than the first is resized to that."""
        scaling = self._scaling
        if isinstance(scaling, PatchScaling) and self.frame_size not in (None, scaling.sizes(*picture.shape[:2])[-1]):
            scaling = replace(scaling, size=self.frame_size, by_way=None)
        scaled = scaling(picture)
        self.frame_size = self.frame_size or (scaled.shape[0], scaled.shape[1])
        return scaled

    def as_video(self, view: BankView, now: float) -> EncodedVideo:
        """Return the supports of a bank as an encoded video, each with its frames' mean time."""
        assert self.shape is not None  # something has been encoded
        shape, records = self.shape, view.records
        times = tuple(record.mean_time for record in records)
        apart = range(shape.merged)
        video = Video(
            frames=np.zeros((0, 1, 1, 3), np.uint8),  # pixels are not kept
            indices=tuple(record.first for record in records for _ in apart),
            times=tuple(time for time in times for _ in apart),
            duration=max(now - records[0].span[0], 0.0),
            fps=self.defaults.fps,
            total=records[-1].last + 1,
            name=NAME,
        )
        tensors = {name: tensor.to(shape.dtype) for name, tensor in view.tensors.items()}
        features = tensors.pop(FEATURES)
        return EncodedVideo(video, features, shape.grid, shape.tokens_per_frame, times, tensors, shape.structure)
