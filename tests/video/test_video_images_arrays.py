"""Folders of images and arrays in memory as videos."""

import numpy as np
import pytest
import torch
from clips import encode, number_of, numbered
from PIL import Image

from aviot.video import VideoError, read, read_video

ORIENTATION = 0x0112


@pytest.fixture
def folder(tmp_path):
    for i in range(12):
        Image.fromarray(numbered(i)).save(tmp_path / f"img{i}.png")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    (tmp_path / "more").mkdir()
    return tmp_path


def test_images_come_in_natural_order_all_of_them(folder):
    video = read_video(folder)
    assert [number_of(frame) for frame in video.frames] == list(range(12))
    assert (video.fps, video.duration, video.total, video.name) == (2.0, 6.0, 12, folder.name)
    assert video.times[:3] == (0.0, 0.5, 1.0)


def test_images_of_a_known_rate_are_sampled(folder):
    video = read_video(folder, source_fps=8)
    assert [number_of(frame) for frame in video.frames] == [0, 4, 8] == list(video.indices)
    assert video.times == (0.0, 0.5, 1.0)
    assert video.duration == 1.5


def test_too_many_images_are_spread(folder):
    assert read_video(str(folder), max_frames=3).indices == (0, 5, 11)


def test_orientation_depth_and_transparency(tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # turn clockwise
    picture = numbered(0b11110000)
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_video(tmp_path).frames[0], np.rot90(picture, 3))
    gray = picture[..., 0]
    Image.fromarray(gray.astype(np.uint16) * 256).save(tmp_path / "a.png")
    assert np.array_equal(read_video(tmp_path).frames[0], picture)
    Image.fromarray(np.dstack((picture, gray))).save(tmp_path / "a.png")
    assert np.array_equal(read_video(tmp_path).frames[0], picture)
    Image.fromarray(gray).convert("1").save(tmp_path / "a.png")
    assert number_of(read_video(tmp_path).frames[0]) == 0b11110000


def error_of(source, **options):
    with pytest.raises(VideoError) as caught:
        read_video(source, **options)
    return str(caught.value)


def test_folders_that_are_not_videos(tmp_path, folder, monkeypatch):
    assert "is a folder without images" in error_of(folder / "more")
    monkeypatch.setattr(read, "MAX_PIXELS", 100)
    assert "is a picture of 64x48" in error_of(folder)
    monkeypatch.undo()
    Image.fromarray(numbered(3, 32, 32)).save(folder / "img5.png")
    assert "frames must all have one size" in error_of(folder)
    assert read_video(folder, transform=lambda frame: frame[:8, :8]).frames.shape == (12, 8, 8, 3)
    (folder / "img5.png").write_bytes(b"\x89PNG nothing")
    assert "img5.png is not an image that can be read" in error_of(folder)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_arrays_are_sampled_by_their_rate(kind):
    frames = np.stack([numbered(i) for i in range(25)])
    video = read_video(kind(frames), source_fps=10)
    assert isinstance(video.frames, np.ndarray)
    assert video.indices == (0, 5, 10, 15, 20)
    assert [number_of(frame) for frame in video.frames] == [0, 5, 10, 15, 20]
    assert video.times == (0.0, 0.5, 1.0, 1.5, 2.0)
    assert (video.duration, video.total, video.fps) == (2.5, 25, 10.0)
    assert read_video(kind(frames), source_fps=2).duration == 12.5
    video.frames[0] = 7
    assert number_of(frames[0]) == 0  # a copy


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 8, 8, 3)), "must be uint8"),
        (torch.zeros(4, 8, 8, 3), "must be uint8"),
        (np.zeros((4, 3, 8, 8), np.uint8), "move the channels last"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), "move the channels last"),
        (np.zeros((8, 8, 3), np.uint8), r"must be [T,H,W,3]"),
        (np.zeros((4, 8, 8, 4), np.uint8), r"must be [T,H,W,3]"),
        (np.zeros((0, 8, 8, 3), np.uint8), "at least one frame"),
    ],
)
def test_arrays_that_are_not_videos(array, message):
    assert message in error_of(array, source_fps=2)


def test_an_array_needs_its_rate():
    array = np.zeros((4, 8, 8, 3), np.uint8)
    assert "give it with source_fps=" in error_of(array)
    for bad in (0, -1, float("nan"), True, "2"):
        assert "source_fps must be" in error_of(array, source_fps=bad)


def test_asking_for_more_frames_than_there_are_logs_one_warning(folder, tmp_path, caplog):
    frames = np.stack([numbered(i) for i in range(25)])
    clip = encode(tmp_path / "clip.mp4", pictures=25)
    for source, options, total in ((frames, {"source_fps": 5}, 25), (folder, {}, 12), (clip, {}, 25)):
        video = read_video(source, frames=total, **options)
        assert (len(video), caplog.messages) == (total, [])
        video = read_video(source, frames=1000, **options)
        assert video.indices == tuple(range(total))
        assert caplog.messages == [f"{video.name}: asked for 1,000 frames; the video has {total}, all are used"]
        caplog.clear()
