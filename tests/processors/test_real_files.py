"""Pixels of video files equal those of the families' own processors, bit for bit.

The processors get frames that PyAV alone has decoded and turned upright, at the numbers that our sampling chose. Their
own loaders of files sample otherwise, and do not turn rotated videos upright.
"""

from fractions import Fraction

import av
import numpy as np
import pytest
import tiny_models as tiny
import torch
from clips import encode
from theirs import clip, loaded, metadata, pixels_of, processed

UNEVEN = [0, 40, 90, 100, 300, 333, 400, 480, 700, 710]  # milliseconds
FILES = {
    "odd": {"size": (127, 83), "frames": 9, "codec": "ffv1", "suffix": "mkv"},
    "odd-444": {"size": (127, 83), "frames": 8, "pixels": "yuv444p"},
    "portrait": {"size": (90, 160), "frames": 10},
    "one-frame": {"size": (96, 64), "frames": 1},
    "variable-rate": {"size": (64, 96), "frames": len(UNEVEN), "pts": UNEVEN, "time_base": Fraction(1, 1000)},
    "rotated": {"size": (128, 72), "frames": 6, "rotation": 90},
    "upside-down": {"size": (72, 128), "frames": 6, "rotation": 180},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")

    def write(name, frames, size, suffix="mp4", rotation=0, codec="libx264", **options):
        path = folder / f"{name}.{suffix}"
        pictures = clip(frames, size[::-1])
        if not rotation:
            return encode(path, codec, pictures=pictures, size=size, rate=4, **options)
        with av.open(str(path), "w") as out:
            stream = out.add_stream(codec, rate=4)
            if not hasattr(stream, "set_display_rotation"):
                pytest.skip("this PyAV cannot write a rotation")
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            stream.set_display_rotation(rotation)
            for picture in pictures:
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            out.mux(stream.encode(None))
        return path

    return {name: write(name, **about) for name, about in FILES.items()}


def decoded(path):
    """Return every frame upright, and its time in seconds."""
    with av.open(str(path)) as reader:
        frames = list(reader.decode(video=0))
        pictures = [np.rot90(one.to_ndarray(format="rgb24"), one.rotation // 90) for one in frames]
        return np.stack(pictures), [float((one.pts - frames[0].pts) * one.time_base) for one in frames]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_pixels_of_files_equal_the_processors(family, name, files):
    lm, _, processor = loaded(family)
    video = lm.backbone.read(files[name], fps=4)
    whole, times = decoded(files[name])
    shown = whole[list(video.indices)]
    assert video.times == pytest.approx([times[index] for index in video.indices], abs=1e-9)
    assert video.total == FILES[name]["frames"] == len(whole)
    if len(shown) == 1 and family in tiny.NO_SINGLE_FRAMES:
        shown = np.repeat(shown, 2, 0)  # as they pad odd numbers of frames; one they refuse
    inputs = processed(processor, [shown], ["What?"], about=[metadata(shown, video.fps, total=len(whole))])
    pixels = pixels_of(lm, video)
    assert torch.equal(pixels, inputs[tiny.PIXELS[family]].reshape(pixels.shape))


def test_files_are_as_awkward_as_their_names_say(files):
    assert decoded(files["odd"])[0].shape[1:3] == (83, 127)
    assert decoded(files["rotated"])[0].shape[1:3] == (128, 72)
    assert len(set(np.diff(decoded(files["variable-rate"])[1]).round(3))) > 3
    flat, turned = decoded(files["portrait"])[0], decoded(files["upside-down"])[0]
    assert all(one.shape[1] > one.shape[2] for one in (flat, turned))
