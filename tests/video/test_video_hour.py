"""An hour of video is read in seconds, with no more memory than a minute of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from clips import encode, repeat

MEASURE = """
import sys, time
from memory import peak
from aviot.video import read_video
for path in sys.argv[1:]:
    before, begin = peak(), time.monotonic()
    video = read_video(path)
    grown = (peak() - before) / 2**20
    assert video.indices[-1] + 1 == video.total and video.damage is None, video
    print(len(video), video.total, video.duration, time.monotonic() - begin, grown)
"""
FRAMES = 224


def measure(*paths):
    command = [sys.executable, "-c", MEASURE, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=Path(__file__).parent)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def test_an_hour_takes_seconds_and_few_megabytes(tmp_path):
    options = {"g": "150", "keyint_min": "150", "preset": "ultrafast", "bf": "2"}
    group = encode(tmp_path / "group.mp4", pictures=300, rate=30, size=(160, 90), options=options)
    hours = [repeat(group, tmp_path / f"hour.{suffix}", 360) for suffix in ("mp4", "mkv")]
    for frames, total, duration, seconds, grown in measure(*hours):
        assert (frames, total, duration) == (FRAMES, 108_000, pytest.approx(3600))
        assert seconds < 20
        assert grown < 100
