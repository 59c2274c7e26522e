"""Helpers that encode small test videos with PyAV, whose frames show their own number."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

BITS = 8
BLACK, WHITE = 40, 215


def numbered(number: int, width: int = 64, height: int = 48) -> np.ndarray:
    """Return a frame of vertical bars, dark or bright: the number in binary, most significant bit on the left."""
    bits = [(number >> (BITS - 1 - k)) & 1 for k in range(BITS)]
    columns = np.arange(width) * BITS // width
    row = np.where(np.array(bits)[columns], WHITE, BLACK).astype(np.uint8)
    return np.repeat(np.repeat(row[None, :, None], height, axis=0), 3, axis=2)


def number_of(picture: np.ndarray) -> int:
    """Return the number that a frame shows."""
    means = [part.mean() for part in np.array_split(np.asarray(picture, dtype=float), BITS, axis=1)]
    return sum(int(mean > (BLACK + WHITE) / 2) << (BITS - 1 - k) for k, mean in enumerate(means))


def encode(
    path: Any,
    codec: str = "libx264",
    *,
    pictures: Iterable[np.ndarray] | int = 60,
    rate: Fraction | int = 25,
    size: tuple[int, int] = (64, 48),
    pixels: str = "yuv420p",
    options: dict[str, str] | None = None,
    container: str | None = None,
    muxing: dict[str, str] | None = None,
    pts: list[int] | None = None,
    time_base: Fraction | None = None,
    sound: bool = False,
    sound_frames: int = 20,
    **settings: object,
) -> Any:
    """Write a video to a path or an object with `write`.

    `pts` in `time_base` makes its frame rate variable, `settings` are attributes of the encoder.
    """
    if isinstance(pictures, int):
        pictures = (numbered(i, *size) for i in range(pictures))
    with av.open(str(path) if isinstance(path, Path) else path, "w", format=container, options=muxing or {}) as out:
        stream = out.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        if time_base is not None:
            stream.codec_context.time_base = time_base
        for name, value in settings.items():
            setattr(stream.codec_context, name, value)
        audio = out.add_stream("aac", rate=8000) if sound else None
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = i if pts is None else pts[i]
            frame.time_base = time_base or Fraction(1) / rate
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
        if audio is not None:
            silence(out, audio, sound_frames)
    return path


def silence(out: av.container.OutputContainer, stream: av.AudioStream, frames: int = 20) -> None:
    """Write silent audio."""
    for i in range(frames):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 8000, i * 1024
        out.mux(stream.encode(frame))
    out.mux(stream.encode(None))


def repeat(source: Path, path: Path, times: int) -> Path:
    """Write the packets of a video several times, as one long video, without encoding them again."""
    with av.open(str(source)) as template, av.open(str(path), "w") as out:
        try:
            target = out.add_stream_from_template(template.streams.video[0], opaque=True)
        except (AttributeError, TypeError):
            pytest.skip("PyAV 14.0 cannot copy a stream")
        shift = 0
        for _ in range(times):
            length = 0
            with av.open(str(source)) as reader:
                for packet in reader.demux(video=0):
                    if packet.size:
                        packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                        length += packet.duration
                        packet.stream = target
                        out.mux(packet)
            shift += length
    return path


def sequential(path: Path) -> list[np.ndarray]:
    """Return every frame, by decoding the file from start to end."""
    with av.open(str(path)) as reader:
        return [frame.to_ndarray(format="rgb24") for frame in reader.decode(video=0)]
