"""Memory while a video is read: decoded frames are released at once."""

import io
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from clips import encode, numbered
from PIL import Image, ImageOps

from aviot.video import read_video

MEASURE = """
import gc, sys
from memory import peak
from aviot.video import read_video
gc.disable()
for frames in (8, 72):
    read_video(sys.argv[1], frames=frames, transform=lambda frame: frame[:8, :8].copy())
    print(peak() / 2**20, "torch" in sys.modules)
"""


def test_frames_do_not_stay_in_memory(tmp_path):
    """Each of these frames takes 3.5 MB, and the last 64 would take 225 MB."""
    path = encode(tmp_path / "large.mp4", pictures=72, size=(1920, 1200), options={"preset": "ultrafast"})
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parent)
    (few, without_torch), (many, _) = (line.split() for line in done.stdout.splitlines())
    assert float(many) - float(few) < 50
    assert without_torch == "False"


@pytest.mark.skipif(av.library_versions["libavcodec"] < (62,), reason="FFmpeg before 8 does not turn JPEGs")
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_frames_with_exif_tags_are_read_and_rotated(tmp_path, orientation):
    tags, stored = Image.Exif(), io.BytesIO()
    tags[0x0112] = orientation
    picture = numbered(0b10110001)
    picture[:20, :, 0] = 90
    Image.fromarray(picture).save(stored, "JPEG", exif=tags, quality=95)
    path = tmp_path / "phone.mjpeg"
    path.write_bytes(stored.getvalue() * 3)
    turned = ImageOps.exif_transpose(Image.open(stored)).convert("RGB")
    frame = read_video(path, frames=1).frames[0]
    assert frame.shape == np.asarray(turned).shape
    assert np.abs(frame.astype(int) - np.asarray(turned)).mean() < 3
