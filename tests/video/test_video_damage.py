"""Damaged files: what can be decoded is the video, the rest is refused, nothing crashes."""

import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from clips import encode, number_of

from aviot.video import VideoError, decode, files, read_video

GOP = {"g": "10", "bf": "2", "keyint_min": "10", "sc_threshold": "0"}
MUTANTS = 300


def noisy(count, seed=0):
    """Pictures that do not compress, so that a cut goes through the middle of something."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(count)]


@pytest.mark.parametrize("suffix", ["mkv", "ts", "flv", "avi"])
@pytest.mark.parametrize("share", [0.35, 0.7, 0.999])
def test_a_file_cut_in_the_middle_is_a_shorter_video(tmp_path, suffix, share):
    codec = "mpeg4" if suffix == "avi" else "libx264"
    path = encode(tmp_path / f"cut.{suffix}", codec, pictures=noisy(60), options=GOP)
    whole = read_video(path, frames=60)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    video = read_video(path, frames=60)
    stored = len(packets_of(path))
    assert stored - 3 <= video.total <= stored <= 60
    assert len(video.frames) == len(video.times) == video.total
    assert video.duration <= whole.duration + 0.04
    same = [np.array_equal(a, b) for a, b in zip(video.frames, whole.frames, strict=False)]
    assert all(same[:-3])


@pytest.mark.parametrize(("share", "told"), [(0.5, True), (0.9, True), (1.0, False)])
def test_a_file_that_tells_of_more_than_it_has_is_said_to_be_cut_off(tmp_path, caplog, share, told):
    path = encode(tmp_path / "cut.mp4", pictures=noisy(60), options=GOP, muxing={"movflags": "faststart"})
    whole = read_video(path, frames=60)
    assert not caplog.records
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    video = read_video(path, frames=60)
    assert (video.total < whole.total) == told
    assert [record.levelname for record in caplog.records] == ["WARNING"] * told
    if told:
        assert f"tells of {whole.duration:.1f} seconds and ends after {video.duration:.1f}" in caplog.text


def test_an_mp4_whose_end_was_never_written_is_refused(tmp_path):
    path = encode(tmp_path / "cut.mp4", options=GOP)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(VideoError, match="not a video that FFmpeg can read"):
        read_video(path)


def packets_of(path):
    with av.open(str(path)) as reader:
        return [(p.pos, p.size, p.pts) for p in reader.demux(video=0) if p.size]


def blank(path, packets):
    data = bytearray(path.read_bytes())
    for place, size, _ in packets:
        data[place : place + size] = bytes(size)
    path.write_bytes(data)


@pytest.mark.parametrize("wish", [{"frames": 7}, {"fps": 25}, {"fps": 3}])
def test_a_broken_last_group_is_left_out_and_frames_are_chosen_anew(tmp_path, wish, monkeypatch):
    path = encode(tmp_path / "tail.mp4", options=GOP)
    blank(path, packets_of(path)[50:])
    if "frames" in wish:
        monkeypatch.setattr(files, "_read_counting", None)  # a second choice is enough
    video = read_video(path, **wish)
    assert [number_of(frame) for frame in video.frames] == list(video.indices)
    assert max(video.indices) < 50
    assert video.times == pytest.approx([i / 25 for i in video.indices])
    if "frames" in wish:
        assert (len(video), video.indices[-1], video.total, video.duration) == (7, 49, 50, pytest.approx(2.0))


def test_a_hole_in_the_middle_is_stepped_over(tmp_path):
    path = encode(tmp_path / "hole.mp4", options=GOP)
    blank(path, packets_of(path)[20:30])
    video = read_video(path, frames=60)
    shown = [number_of(frame) for frame in video.frames]
    assert shown == [*range(20), *range(30, 60)]
    assert video.times == pytest.approx([i / 25 for i in shown])
    assert video.duration == pytest.approx(2.4)


def test_holes_everywhere_are_counted_out_by_decoding_all(tmp_path):
    path = encode(tmp_path / "holes.mkv", "mjpeg", pixels="yuvj420p")
    packets = packets_of(path)
    # Matroska gives where a block begins, not its data.
    data = path.read_bytes()
    starts = [data.index(b"\xff\xd8", place) for place, _, _ in packets]
    blank(path, [(start, size, None) for start, (_, size, _) in list(zip(starts, packets, strict=True))[1::3]])
    video = read_video(path, fps=25)
    shown = [number_of(frame) for frame in video.frames]
    assert shown == [i for i in range(60) if i % 3 != 1]
    assert video.times == pytest.approx([i / 25 for i in shown], abs=2e-3)


def test_nothing_decodable_is_refused(tmp_path):
    path = encode(tmp_path / "dead.mp4", options=GOP)
    blank(path, packets_of(path))
    with pytest.raises(VideoError, match="not one picture of it can be decoded"):
        read_video(path)


def long_clip(tmp_path):
    return encode(tmp_path / "long.mkv", pictures=250, options={"g": "25", "keyint_min": "25", "bf": "2"})


def test_a_container_that_cannot_seek_is_read_through(tmp_path, monkeypatch):
    path = long_clip(tmp_path)
    monkeypatch.setattr(decode.Seeker, "_seek", lambda self, key, number: None)
    video = read_video(path, frames=4)
    assert [number_of(frame) for frame in video.frames] == [0, 83, 166, 249]


def test_a_container_that_seeks_to_the_wrong_place_is_not_believed(tmp_path, monkeypatch):
    path = long_clip(tmp_path)
    original = decode.Seeker._seek

    def astray(self, key, number):
        return original(self, 225 if key else 0, number)

    monkeypatch.setattr(decode.Seeker, "_seek", astray)
    video = read_video(path, frames=4)
    assert [number_of(frame) for frame in video.frames] == [0, 83, 166, 249]


def test_packets_that_are_not_the_indexed_ones_lead_to_counting(tmp_path, monkeypatch):
    path = long_clip(tmp_path)
    monkeypatch.setattr(files.Seeker, "_find", lambda self, number: None)
    video = read_video(path, frames=4)
    assert [number_of(frame) for frame in video.frames] == [0, 83, 166, 249]


SOURCES = {
    "mp4": ("libx264", {}),
    "mkv": ("libx264", {}),
    "ts": ("libx264", {}),
    "flv": ("flv", {}),
    "webm": ("libvpx-vp9", {"options": {"cpu-used": "8", "deadline": "realtime"}}),
    "avi": ("mpeg4", {}),
    "gif": ("gif", {"pixels": "rgb8", "rate": 10}),
    "mjpeg": ("mjpeg", {"pixels": "yuvj420p", "container": "mjpeg"}),
    "h264": ("libx264", {"container": "h264"}),
    "nut": ("ffv1", {}),
}


def test_mutated_files_neither_crash_nor_hang_nor_fill_the_memory(tmp_path):
    for suffix, (codec, settings) in SOURCES.items():
        encode(tmp_path / f"source.{suffix}", codec, pictures=30, **settings)
    script = Path(__file__).with_name("mutants.py")
    command = [sys.executable, str(script), str(tmp_path), str(MUTANTS), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("read ")
