"""Decoding of one file by several decoders, each with groups of pictures of its own.

Only at keyframes where a decoder forgets everything before them, so that frames are the same to the bit as with one
decoder. Anything unusual, an error above all, makes the caller decode with one: how damage is found depends on it.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Empty, SimpleQueue

import numpy as np

from aviot.video.checks import VideoError
from aviot.video.container import MAX_THREADS, THREADED_PIXELS, VideoContainer, cpu_count
from aviot.video.decode import DecodeRun, RgbConverter, SeekError, SeekingDecoder, plan_runs
from aviot.video.frames import FrameBuffer, Scaling
from aviot.video.packets import PacketIndex
from aviot.video.patch_scaling import PatchScaling

HELD_PICTURES = 8
"""Pictures that one decoder holds for reference, of those that all decoders may hold together."""

MIN_PACKETS = 48
"""Packets of the smallest part that a decoder of its own pays for."""

THREAD_SAFE = (type(None), Scaling, PatchScaling)
"""Transforms that several threads may call at a time; those of a caller need not be."""


def plan_parts(index: PacketIndex, indices: tuple[int, ...]) -> list[DecodeRun]:
    """Return the runs that decode the sampled frames, divided at clean keyframes into parts, in the order of time."""
    parts: list[DecodeRun] = []
    cuts = np.flatnonzero(index.clean)
    for run in plan_runs(index, indices):
        inside = [int(cut) for cut in cuts[(cuts > run.start) & (cuts <= run.end)]]
        for start, end in zip([run.start, *inside], [*(cut - 1 for cut in inside), run.end], strict=True):
            here = set(index.pts[start : end + 1].tolist())
            wanted = {time: slot for time, slot in run.wanted.items() if time in here}
            if parts and wanted and parts[-1].end + 1 == start and _size(parts[-1]) < MIN_PACKETS:
                parts[-1] = DecodeRun(parts[-1].start, end, parts[-1].wanted | wanted)
            elif wanted:
                parts.append(DecodeRun(start, end, wanted))
            elif parts and parts[-1].end + 1 == start:
                parts[-1] = replace(parts[-1], end=end)  # decoded by one decoder too, whose errors are counted
    return parts


def _size(part: DecodeRun) -> int:
    return part.end - part.start + 1


def decoders_for(source: VideoContainer, parts: int) -> tuple[int, int]:
    """Return the number of decoders that a file is decoded by, and the threads of each."""
    codec, cpus = source.stream.codec_context, cpu_count()
    pictures = THREADED_PIXELS // max(1, codec.width * codec.height)
    decoders = min(parts, cpus, MAX_THREADS, pictures // HELD_PICTURES)
    if decoders < 2:
        return 1, 0
    return decoders, max(1, min(cpus // decoders, pictures // decoders - HELD_PICTURES))


def decode_in_parallel(
    source: VideoContainer, index: PacketIndex, parts: Sequence[DecodeRun], buffer: FrameBuffer
) -> bool:
    """Decode parts into a buffer; False unless every packet of them decodes, and the buffer is then to be dropped.

    Parts are taken in the order of time, so that early frames arrive first.
    """
    decoders, threads = decoders_for(source, len(parts))
    source.expect(sum(map(_size, parts)))
    waiting: SimpleQueue[DecodeRun] = SimpleQueue()
    for part in parts:
        waiting.put(part)
    with ThreadPoolExecutor(decoders, "aviot-decode") as pool:
        working = [pool.submit(_work, source, threads, index, waiting, buffer) for _ in range(decoders)]
        try:
            clean = [each.result() for each in working]
        finally:
            _drain(waiting)  # an error in one ends the others after the part they are at
    return all(clean)


def _work(
    source: VideoContainer, threads: int, index: PacketIndex, waiting: "SimpleQueue[DecodeRun]", buffer: FrameBuffer
) -> bool:
    """Decode one part after another; False if one did not decode cleanly."""
    converter = RgbConverter()
    try:
        with source.again(threads) as own:
            decoder = SeekingDecoder(own, index)
            while True:
                for slot, frame in decoder.decode_cleanly(waiting.get_nowait()):
                    buffer.put(slot, converter.convert(frame))
    except Empty:
        return True
    except (SeekError, VideoError):
        _drain(waiting)
        return False


def _drain(waiting: "SimpleQueue[DecodeRun]") -> None:
    while True:
        try:
            waiting.get_nowait()
        except Empty:
            return
