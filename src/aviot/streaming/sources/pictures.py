"""Sources of single pictures: a folder that gets images, and raw RGB frames on a pipe."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aviot.streaming.sources.base import POLL_SECONDS, FrameSource, LiveFrame
from aviot.video import Picture
from aviot.video.checks import MAX_PIXELS, VideoError
from aviot.video.read import list_images, load_image

PATIENCE = 2.0  # seconds after which an image that cannot be read counts as damaged: it may still be written
RGB = 3  # bytes per pixel


class FolderOfImages(FrameSource):
    """The images of a folder in natural order, and those that are put into it later; `fps` gives them times.

    Times of the same image, if it is written again, are not looked at. `end_after` is the time in seconds without a new
    image after which the folder counts as complete (None: never).
    """

    def __init__(self, folder: Path, fps: float, end_after: float | None) -> None:
        if not folder.is_dir():
            raise VideoError(f"{folder} is not a directory")
        self._folder, self._fps, self._end_after = folder, fps, end_after
        self._done: set[str] = set()
        self._failing: dict[str, float] = {}  # since when

    def frames(self, stop: threading.Event) -> Iterator[LiveFrame]:
        """Look for new images until none has come for too long."""
        quiet_since, number = time.monotonic(), 0
        while not stop.is_set():
            images = self._images()
            self._done &= {path.name for path in images}  # those that were removed need not be remembered
            for path in (each for each in images if each.name not in self._done):
                picture = self._loaded(path)
                if picture is None:
                    break  # it may be complete later, and those after it have their turn then
                quiet_since = time.monotonic()
                if len(picture):
                    yield LiveFrame(number / self._fps, partial(np.asarray, picture))
                    number += 1
            if self._end_after is not None and time.monotonic() - quiet_since > self._end_after:
                return
            stop.wait(POLL_SECONDS)

    def _images(self) -> list[Path]:
        try:
            return list_images(self._folder)
        except VideoError:
            if not self._folder.is_dir():
                raise
            return []  # none yet

    def _loaded(self, path: Path) -> Picture | None:
        """Return an image; None if it is to be tried again, nothing of it if it has been given up."""
        try:
            picture = load_image(path)
        except VideoError:
            since = self._failing.setdefault(path.name, time.monotonic())
            if time.monotonic() - since < PATIENCE:
                return None
            self.damaged += 1
            picture = np.zeros((0, 0, RGB), np.uint8)
        self._done.add(path.name)
        self._failing.pop(path.name, None)
        return picture


class RawFrames(FrameSource):
    """Frames of a fixed size as bytes, RGB, row by row, one after another; `fps` gives them times (None: arrival)."""

    def __init__(self, file: BinaryIO, width: int, height: int, fps: float | None) -> None:
        if width < 1 or height < 1 or width * height > MAX_PIXELS:
            raise ValueError(f"raw frames must have 1 to {MAX_PIXELS:,} pixels, got {width}x{height}")
        self._file, self._shape, self._fps = file, (height, width, RGB), fps

    def frames(self, stop: threading.Event) -> Iterator[LiveFrame]:
        """Read frame by frame; an incomplete last one counts as damaged."""
        size, number = int(np.prod(self._shape)), 0
        while not stop.is_set():
            data = self._file.read(size)
            if len(data) < size:
                self.damaged += bool(data)
                return
            picture = np.frombuffer(data, np.uint8).reshape(self._shape)
            yield LiveFrame(None if self._fps is None else number / self._fps, partial(np.asarray, picture))
            number += 1
