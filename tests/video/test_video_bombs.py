"""Small files that declare huge contents are refused at once; legitimate files like them are not."""

import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bombs import BOMBS, header, mp4, slow, track
from clips import encode, number_of, numbered, repeat

from aviot.video import ReadLimits, VideoError, container, mp4_tables, read_video
from aviot.video.mp4_tables import check_sample_counts

SECONDS, MEGABYTES = 10, 500
REFUSE = """
import sys
from memory import peak
from aviot.video import VideoError, read_video
try:
    read_video(sys.argv[1])
except VideoError as error:
    print(error)
print(peak() / 1e6)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_with_little_time_and_memory(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BOMBS[name]())
    assert path.stat().st_size < 150_000
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parent,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30)),
    )
    *message, peak = done.stdout.splitlines()
    assert time.monotonic() - begin < SECONDS
    assert float(peak) < MEGABYTES
    assert "claims" in message[0] or "unpacks to more than" in message[0]


def test_a_truncated_file_with_long_tables_is_damaged_not_refused(tmp_path, monkeypatch):
    """The header comes first and lists the missing samples; each has four bytes there."""
    group = encode(tmp_path / "group.mp4", pictures=300, rate=30, options={"preset": "ultrafast"})
    path = repeat(group, tmp_path / "long.mov", 20)
    data = encode(tmp_path / "front.mp4", pictures=600, muxing={"movflags": "faststart"}).read_bytes()
    monkeypatch.setattr(mp4_tables, "FREE_SAMPLES", 0)
    assert read_video(path).total == 6000
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(data[: data.index(b"mdat") + 3000])
    video = read_video(cut)
    assert video.damage is not None
    assert number_of(video.frames[0]) == 0


@pytest.mark.parametrize("flags", ["frag_keyframe+empty_moov", "frag_every_frame+empty_moov", "dash+delay_moov"])
def test_fragments_count_their_samples(tmp_path, monkeypatch, flags):
    path = encode(tmp_path / "clip.mp4", muxing={"movflags": flags}, options={"g": "10"})
    monkeypatch.setattr(mp4_tables, "FREE_SAMPLES", 0)
    assert read_video(path, frames=60).total == 60
    monkeypatch.setattr(mp4_tables, "MAX_SAMPLES", 59)
    with pytest.raises(VideoError, match="claims 60 samples"):
        read_video(path)


@pytest.mark.parametrize(
    ("made", "entries"),
    [
        (track(samples=1000), 1000),
        (track(samples=1000, edits=1), 1000),
        (track(samples=1000, edits=5), 5000),
        (track(samples=48_000, sound=True, chunks=10, per_chunk=4800), 50),  # five of 1024 samples in each chunk
        (track(samples=1000, sound=True) + track(samples=500), 501),
    ],
)
def test_index_entries_are_those_that_ffmpeg_creates(tmp_path, monkeypatch, made, entries):
    path = tmp_path / "made.mp4"
    path.write_bytes(mp4(header(made)))
    monkeypatch.setattr(mp4_tables, "MAX_SAMPLES", entries)
    check_sample_counts(path)
    monkeypatch.setattr(mp4_tables, "MAX_SAMPLES", entries - 1)
    with pytest.raises(VideoError, match=f"claims {entries:,} samples"):
        check_sample_counts(path)


def test_short_edits_count_what_they_show(tmp_path, monkeypatch):
    """A hundred edits of a long video are legitimate: they add up to about its length."""
    path = tmp_path / "cuts.mp4"
    whole = mp4(header(track(samples=10_000, edits=100)))
    at = whole.index(b"elst") + 12
    cuts = b"".join(struct.pack(">IiI", 100, 100 * number, 1 << 16) for number in range(100))
    path.write_bytes(whole[:at] + cuts + whole[at + len(cuts) :])
    monkeypatch.setattr(mp4_tables, "MAX_SAMPLES", 11_000)
    check_sample_counts(path)


def test_nested_boxes_and_truncated_tables_are_read_in_finite_time(tmp_path):
    path = tmp_path / "nested.mp4"
    rng = np.random.default_rng(0)
    data = mp4(header(track(samples=5, edits=2)))
    for _ in range(300):
        changed = bytearray(data[: rng.integers(8, len(data))])
        for place in rng.integers(0, len(changed), 3):
            changed[place] = rng.integers(256)
        path.write_bytes(changed)
        try:
            check_sample_counts(path)
        except VideoError as error:
            assert "claims" in str(error)  # noqa: PT017


def test_still_videos_are_within_the_limit_on_decoded_pixels(tmp_path, monkeypatch):
    """The smallest files that real encoders write for a frame that does not change."""
    monkeypatch.setattr(container, "FREE_PIXELS", 0)
    blank = [np.full((720, 1280, 3), 255, np.uint8)] * 40
    for name, codec, pixels in (("a.gif", "gif", "rgb8"), ("a.mp4", "libx264", "yuv420p")):
        path = encode(tmp_path / name, codec, pictures=blank, size=(1280, 720), pixels=pixels)
        assert len(read_video(path, transform=lambda frame: frame[:8, :8])) > 2


def test_frames_that_grow_midway_are_counted_at_their_size(tmp_path, monkeypatch):
    small = encode(tmp_path / "small.h264", pictures=20).read_bytes()
    large = encode(tmp_path / "large.h264", pictures=[numbered(i, 640, 480) for i in range(20)], size=(640, 480))
    path = tmp_path / "both.h264"
    path.write_bytes(small + large.read_bytes())
    read_video(path, transform=lambda frame: frame[:8, :8])
    monkeypatch.setattr(container, "FREE_PIXELS", 100 * 64 * 48)
    monkeypatch.setattr(container, "PIXELS_PER_BYTE", 0)
    with pytest.raises(VideoError, match="unpacks to more than"):
        read_video(path, transform=lambda frame: frame[:8, :8])


def test_reading_in_process_has_a_deadline(tmp_path):
    """A GIF that is within every limit and takes a minute, a file that takes long to index, and a folder of images."""
    from PIL import Image

    gif = tmp_path / "slow.gif"
    gif.write_bytes(slow())
    begin = time.monotonic()
    with pytest.raises(VideoError, match=r"was not read within 0\.6 s and was given up"):
        read_video(gif, transform=lambda frame: frame[:8, :8], limits=ReadLimits(seconds=0.5))
    assert time.monotonic() - begin < SECONDS
    clip = encode(tmp_path / "clip.mp4", pictures=20)
    images = tmp_path / "images"
    images.mkdir()
    for number in range(2):
        Image.new("RGB", (8, 8)).save(images / f"{number}.png")
    for source in (clip, images):
        read_video(source)
        with pytest.raises(VideoError, match="was not read within"):
            read_video(source, limits=ReadLimits(seconds=1e-9, seconds_per_megabyte=0))


def test_answer_passes_its_time_limit_on(tmp_path):
    from typer.testing import CliRunner

    from aviot.cli import app

    path = tmp_path / "slow.gif"
    path.write_bytes(slow())
    given = ["answer", str(path), "-q", "Why?", "--max-frames", "4", "--read-timeout"]
    done = CliRunner().invoke(app, [*given, "1"])
    assert done.exit_code == 2
    assert "was not read within 1.1 s" in done.stderr
    for wrong in ("0", "nan", "inf"):
        assert CliRunner().invoke(app, [*given, wrong]).exit_code == 2
