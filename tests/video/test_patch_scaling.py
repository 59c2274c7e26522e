"""Scaling of frames to patches; tests/processors compares it with the families' own processors."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from aviot.video import PatchScaling, VideoError, read_video
from aviot.video.isolated import read_isolated

FRAME = np.random.RandomState(0).randint(0, 256, (61, 83, 3)).astype(np.uint8)


def test_torch_without_lanczos_uses_bicubic(monkeypatch):
    """Older versions of torch refuse the mode with this error, and the families' processors use bicubic there."""
    newer = functional.interpolate

    def older(pixels, *, mode, **options):
        if mode == "lanczos":
            raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes")
        return newer(pixels, mode=mode, **options)

    best, cubic = (PatchScaling(size=(24, 40), filter=name)(FRAME) for name in ("lanczos", "bicubic"))
    assert not np.array_equal(best, cubic)
    monkeypatch.setattr(functional, "interpolate", older)
    assert np.array_equal(PatchScaling(size=(24, 40), filter="lanczos")(FRAME), cubic)
    with pytest.raises(ValueError, match="Anti-alias"):
        PatchScaling(size=(24, 40), filter="box")(FRAME)


def test_frames_of_the_right_size_are_not_touched():
    scaling = PatchScaling(factor=28, least=28 * 28, most=28 * 28 * 100)
    frame = np.random.RandomState(1).randint(0, 256, (56, 84, 3)).astype(np.uint8)
    assert np.array_equal(scaling(frame), frame)


def test_a_strip_is_refused():
    with pytest.raises(VideoError, match="crop the video"):
        PatchScaling().sizes(10, 2010)


def test_limits_on_a_whole_video_follow_its_number_of_frames():
    frames = np.zeros((32, 96, 96, 3), np.uint8)
    scaling = PatchScaling(factor=32, least=32 * 32, most=32 * 32 * 32, limit="video", temporal=2)
    few, many = (read_video(frames[:count], source_fps=2.0, frames=count, transform=scaling) for count in (2, 32))
    assert few.frames.shape[1:3] == (96, 96)
    assert many.frames.shape[1:3] == (32, 32)
    assert scaling.frames == 1


def test_the_isolated_reader_scales_alike(tmp_path):
    from clips import encode

    path = encode(tmp_path / "clip.mp4", pictures=[FRAME[:60, :80]] * 8, rate=4, size=(80, 60))
    scaling = PatchScaling(factor=28, least=28 * 28 * 2, most=28 * 28 * 40, limit="shared")
    here, apart = (read(path, fps=4, transform=scaling) for read in (read_video, read_isolated))
    assert here.frames.shape == (8, 28, 56, 3)  # 5 blocks each, where the frame alone would have 2 x 3
    assert np.array_equal(here.frames, apart.frames)
    assert torch.from_numpy(np.asarray(here.frames)).is_contiguous()
