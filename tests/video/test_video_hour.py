"""An hour of video: read in seconds, in no more memory than a minute of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from clips import encode, repeat

MEASURE = """
import sys, time
from memory import peak
from aviot.video import read_video
before, begin = peak(), time.monotonic()
video = read_video(sys.argv[1])
grown = (peak() - before) / 2**20
assert (len(video), video.indices[-1] + 1) == (int(sys.argv[2]), video.total), (len(video), video.total)
print(video.total, video.duration, time.monotonic() - begin, grown)
"""


def measure(path, frames):
    command = [sys.executable, "-c", MEASURE, str(path), str(frames)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parent)
    return tuple(map(float, done.stdout.split()))


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_an_hour_takes_seconds_and_few_megabytes(tmp_path, suffix):
    options = {"g": "300", "keyint_min": "300", "preset": "ultrafast", "bf": "2"}
    group = encode(tmp_path / "group.mp4", pictures=300, rate=30, size=(160, 90), options=options)
    hour = repeat(group, tmp_path / f"hour.{suffix}", 360)
    total, duration, seconds, grown = measure(hour, 224)
    assert (total, duration) == (108_000, pytest.approx(3600))
    assert seconds < 20
    assert grown < 100
