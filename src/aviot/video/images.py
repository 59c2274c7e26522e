"""Frames from a folder of images."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from aviot.video.errors import VideoError, reason
from aviot.video.limits import MAX_PIXELS
from aviot.video.paths import find_images
from aviot.video.result import Video
from aviot.video.sample import Sampling
from aviot.video.shelf import Picture, Shelf, Transform
from aviot.video.timeline import Timeline

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def read_folder(folder: Path, sampling: Sampling, transform: Transform | None, source_fps: float | None) -> Video:
    """Take a folder's images in natural order as a video of constant rate.

    Without `source_fps` they are taken to have been sampled already, at the rate that is asked for: none is skipped
    unless they are too many.
    """
    images = list_images(folder)
    timeline = Timeline.constant(len(images), Fraction(source_fps or sampling.fps))
    chosen = sampling.indices(len(timeline), timeline.fps)
    shelf = Shelf(len(chosen), transform)
    for place, number in enumerate(chosen):
        shelf.put(place, load_image(images[number]))
    return Video(
        frames=shelf.frames(),
        indices=chosen,
        times=timeline.times(chosen),
        duration=timeline.duration,
        fps=timeline.fps,
        total=len(timeline),
        name=folder.resolve().name,
    )


def list_images(folder: Path) -> list[Path]:
    """Image files directly in a folder by the numbers in their names, img2 before img10; hidden ones are passed by."""
    return sorted(find_images(folder), key=_natural)


def _natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"([0-9]+)|([^0-9]+)", path.name.lower())
    return [(0, int(digits), "") if digits else (1, 0, text) for digits, text in parts], path.name


def load_image(path: Path) -> Picture:
    """One image as upright RGB [H,W,3]: its EXIF orientation is applied, transparency dropped, 16 bits become 8."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise VideoError(
                    f"{path} is a picture of {image.width}x{image.height}, more than the {MAX_PIXELS:,} pixels that "
                    "are decoded; scale it down first"
                )
            turned = ImageOps.exif_transpose(image)
            if turned.mode.startswith("I"):
                turned = Image.fromarray((np.asarray(turned) >> 8).clip(0, 255).astype(np.uint8))
            return np.asarray(turned.convert("RGB"))
    except VideoError:
        raise
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        raise VideoError(f"{path} is not an image that can be read ({reason(error)})") from error
