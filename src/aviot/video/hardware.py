"""Decoding by the decoder of an NVIDIA GPU, through PyAV, of files that it decodes as the processor does.

The first sampled frame is decoded by both and compared: a difference of a single value, in rotation or range as much as
in a pixel, leaves the file to the processor, and so does anything else that is unusual.
"""

import logging
from typing import TYPE_CHECKING

import av
import numpy as np

from aviot.video.checks import VideoError
from aviot.video.container import VideoContainer, cpu_count
from aviot.video.decode import RgbConverter, SeekError, SeekingDecoder, plan_runs
from aviot.video.frames import FrameBuffer, Picture
from aviot.video.options import ReadOptions
from aviot.video.packets import PacketIndex

if TYPE_CHECKING:
    from av.codec.hwaccel import HWAccel

logger = logging.getLogger(__name__)

DEVICE = "cuda"

FEW_PROCESSORS = 4
"""Processors up to which a GPU's decoder is chosen: it takes as long as four of them (720p, H.264, one H200)."""

PLANAR = {"nv12": "yuv420p", "p010le": "yuv420p10le"}
"""Pixel formats of the GPU's frames, and the same values in the planes that the processor's decoders write."""


def wants_gpu(options: ReadOptions) -> bool:
    """Return whether the options choose the GPU's decoder, by name or because it is likely to be faster."""
    if options.decoder == "auto":
        return cpu_count() <= FEW_PROCESSORS and DEVICE in _devices() and _gpu_is_there()
    return options.decoder == DEVICE


def open_on_gpu(source: VideoContainer, options: ReadOptions) -> VideoContainer | None:
    """Open a file once more, for the GPU; None with a warning (none for `auto`) where that is not possible."""
    if not _gpu_is_there():
        _warn(source, options, "there is no NVIDIA GPU to decode on")
        return None
    try:
        return VideoContainer(source.path, options.limits, hardware=_accelerator())
    except (ModuleNotFoundError, TypeError, VideoError, OSError, RuntimeError, ValueError) as error:
        _warn(source, options, f"the GPU's decoder cannot be used ({error})")
        return None


def decode_on_gpu(
    own: VideoContainer, source: VideoContainer, index: PacketIndex, indices: tuple[int, ...], options: ReadOptions
) -> FrameBuffer | None:
    """Decode the sampled frames on the GPU; None with a warning unless all decode and the first is the processor's."""
    buffer = FrameBuffer(len(indices), options.transform, progress=options.progress)
    decoder, converter = SeekingDecoder(own, index), PlanarConverter()
    try:
        expected = _first(source, index, indices)
        for run in plan_runs(index, indices):
            for slot, frame in decoder.decode_cleanly(run):
                picture = converter.convert(frame)
                if slot == 0 and not np.array_equal(picture, expected):
                    raise SeekError("its first frame is not the one that the processor decodes")
                buffer.put(slot, picture)
    except (SeekError, VideoError, RuntimeError, NotImplementedError, OSError) as error:
        _warn(source, options, f"the GPU's decoder failed ({error or 'not every packet decodes'})")
        return None
    return buffer if buffer.filled.all() else None


class PlanarConverter(RgbConverter):
    """A converter of the GPU's frames: their planes are set apart first, so that RGB is computed in the same way."""

    def convert(self, frame: av.VideoFrame) -> Picture:
        """Return a frame as uint8 [H,W,3]; SeekError for a pixel format whose planes are not known."""
        name = frame.format.name
        if name not in PLANAR:
            raise SeekError(f"its frames have the format {name}")
        limits = {"src_color_range": frame.color_range, "dst_color_range": frame.color_range}
        planar = self._reformatter.reformat(frame, format=PLANAR[name], **limits)
        planar.color_range, planar.colorspace = frame.color_range, frame.colorspace
        return super().convert(planar)


def _first(source: VideoContainer, index: PacketIndex, indices: tuple[int, ...]) -> Picture:
    """Return the first sampled frame as the processor decodes it."""
    (run,) = plan_runs(index, indices[:1])
    with source.again(1) as own:
        ((_, frame),) = SeekingDecoder(own, index).decode_cleanly(run)
        return RgbConverter().convert(frame)


def _accelerator() -> "HWAccel":
    from av.codec.hwaccel import HWAccel

    return HWAccel(device_type=DEVICE, allow_software_fallback=False)


def _devices() -> list[str]:
    """Return the kinds of devices that this FFmpeg decodes on; none for a PyAV without them."""
    try:
        from av.codec.hwaccel import hwdevices_available
    except ModuleNotFoundError:
        return []
    return hwdevices_available()


def _gpu_is_there() -> bool:
    """Return whether the driver answers: FFmpeg prints errors of its own where it does not."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return driver.cuInit(0) == 0


def _warn(source: VideoContainer, options: ReadOptions, what: str) -> None:
    if options.decoder == DEVICE:
        logger.warning("%s: %s; it is decoded on the processor", source.path, what)
