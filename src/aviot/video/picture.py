"""A decoded frame as an upright RGB picture."""

import math
from typing import cast

import av
import numpy as np
from av.buffer import Buffer
from av.sidedata.sidedata import SideDataContainer
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from aviot.video.errors import VideoError, VideoTooLarge
from aviot.video.shelf import Picture


class Developer:
    """Turns decoded frames of any pixel format, matrix and range into RGB, and the way up they are meant to be seen.

    swscale converts: what a frame says of its colour matrix and range is followed, and one that says nothing is taken
    as limited BT.601, as OpenCV and decord take it. Transparency is dropped.
    """

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def develop(self, frame: av.VideoFrame) -> Picture:
        """One picture, [H,W,3] uint8."""
        try:
            rgb = self._convert(frame, None)
        except VideoError:  # a matrix that swscale does not know
            rgb = self._convert(frame, Colorspace.ITU601.name)
        return upright(cast(Picture, rgb.to_ndarray()), display_matrix(frame))

    def _convert(self, frame: av.VideoFrame, matrix: str | None) -> av.VideoFrame:
        # PyAV before 17 looks at a frame's matrix only where it differs from the target's, which means nothing for RGB
        # but must be given for that; 14.0 takes names only.
        levels = ColorRange.JPEG.name if frame.color_range == ColorRange.JPEG.value else None
        try:
            return self._reformatter.reformat(
                frame,
                format="rgb24",
                src_colorspace=matrix,  # type: ignore[arg-type]
                dst_colorspace=Colorspace.ITU601.name,  # type: ignore[arg-type]
                src_color_range=levels,
            )
        except MemoryError as error:  # one of FFmpeg's too
            raise VideoTooLarge(f"a picture of {frame.width}x{frame.height} takes more memory than there is") from error
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f"pictures of the format {frame.format.name} cannot be converted to RGB") from error


def display_matrix(frame: av.VideoFrame) -> tuple[int, int, int, int] | None:
    """Return the linear part (a, b, c, d) of a frame's display matrix: p' = a·p + c·q, q' = b·p + d·q (right, down).

    The side data are wrapped anew here: `frame.side_data` keeps the wrapper on the frame, which the wrapper refers to,
    so that each picture would stay in memory until Python looks for cycles.
    """
    try:
        data = SideDataContainer(frame).get("DISPLAYMATRIX")  # type: ignore[call-arg]
    except ValueError:  # side data of a type that PyAV has no name for, such as the EXIF tags of a JPEG
        return _rotation_matrix(getattr(frame, "rotation", 0))
    if data is None:
        return None
    a, b, _, c, d = np.frombuffer(bytes(cast(Buffer, data)), np.int32)[:5].tolist()
    return a, b, c, d


def _rotation_matrix(degrees: int) -> tuple[int, int, int, int] | None:
    """Return the display matrix of a rotation, counterclockwise; whether the picture is mirrored is not known."""
    if not degrees:
        return None
    cosine, sine = (round(2**16 * turn(math.radians(degrees))) for turn in (math.cos, math.sin))
    return cosine, -sine, sine, cosine


def upright(picture: Picture, matrix: tuple[int, int, int, int] | None) -> Picture:
    """Turn and mirror a picture as its display matrix says, to the nearest right angle."""
    if matrix is None:
        return picture
    a, b, c, d = matrix
    if abs(a) + abs(d) >= abs(b) + abs(c):
        right, down = a, d
    else:
        picture = picture.transpose(1, 0, 2)
        right, down = c, b
    return np.ascontiguousarray(picture[:: -1 if down < 0 else 1, :: -1 if right < 0 else 1])
