"""Videos: small clips of many containers and folders of images, mutated, through `aviot.video.read_video`."""

import json
import math
import shutil
import struct
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from fuzz.containers import STRUCTURED
from fuzz.mutate import mutate_bytes
from fuzz.target import Broken, Target, require

sys.path.insert(0, str(Path(__file__).parents[1] / "video"))

ISOLATED = 0.1
"""Share of the videos that a process of their own reads, as for the app and `evaluate`; it takes long to start."""

SECONDS = 6.0
"""Deadline of reading a file, in a process of its own or not."""

EXACT = {"fflags": "+bitexact"}
"""Muxer option without which Matroska files get random numbers."""

EXACT_X264 = {"x264-params": "mbtree=0"}
"""Encoder option without which x264 wrote other bytes from run to run here, with one thread too."""

CLIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain.mp4": ("libx264", {}),
    "sound.mp4": ("libx264", {"sound": True, "muxing": {"movflags": "+faststart"}}),
    "fragments.mp4": ("libx264", {"muxing": {"movflags": "frag_keyframe+empty_moov"}, "options": {"g": "8"}}),
    "edited.mov": ("libx264", {"options": {"bf": "2"}, "pts": [3 * i + i % 2 for i in range(24)]}),
    "h265.mp4": ("libx265", {"options": {"x265-params": "log-level=none:pools=1"}}),
    "plain.mkv": ("libx264", {}),
    "vp9.webm": ("libvpx-vp9", {"options": {"cpu-used": "8", "deadline": "realtime"}}),
    "plain.avi": ("mpeg4", {}),
    "mjpeg.avi": ("mjpeg", {"pixels": "yuvj420p"}),
    "plain.gif": ("gif", {"pixels": "rgb8", "rate": 10}),
    "plain.apng": ("apng", {"pixels": "rgb24", "container": "apng"}),
    "plain.ts": ("libx264", {}),
    "plain.mpg": ("mpeg1video", {}),
    "plain.flv": ("flv", {}),
    "plain.wmv": ("wmv2", {}),
    "plain.ogv": ("libvpx", {"container": "ogg"}),
    "plain.mxf": ("mpeg2video", {}),
    "raw.mjpeg": ("mjpeg", {"pixels": "yuvj420p", "container": "mjpeg"}),
    "raw.h264": ("libx264", {"container": "h264"}),
    "raw.y4m": ("wrapped_avframe", {"container": "yuv4mpegpipe"}),
    "plain.nut": ("ffv1", {}),
    "plain.ivf": ("libvpx", {}),
}
IMAGES = ("png", "jpg", "gif", "bmp", "tiff", "webp", "ppm")
PICTURES = 24

SIDE = 54
OPTIONS: tuple[dict[str, Any], ...] = (
    *({"scaled": True}, {"scaled": True, "fps": 1000.0, "max_frames": 300}, {"scaled": True, "fps": 0.01}),
    *({"scaled": True, "frames": 16}, {"frames": 1}, {"frames": 4}),
)
"""How a video is sampled; frames are scaled as they are decoded, as the models' processor does, or they are few."""


def prepare(sources: Path) -> None:
    """Encode one clip per container, and write images of several formats."""
    from clips import encode, numbered
    from PIL import Image

    for name, (codec, settings) in CLIPS.items():
        encode(sources / name, codec, pictures=PICTURES, **settings | _exact(codec, settings))
    (sources / "images").mkdir()
    for number, suffix in enumerate(IMAGES):
        Image.fromarray(numbered(number)).save(sources / "images" / f"{number:03d}.{suffix}")


def _exact(codec: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a clip's options with those that make its bytes the same in every run."""
    encoding = EXACT_X264 if codec == "libx264" else {}
    return {"muxing": settings.get("muxing", {}) | EXACT, "options": settings.get("options", {}) | encoding}


def control(sources: Path, folder: Path) -> None:
    """Copy a clip as it is."""
    shutil.copy(sources / "plain.mp4", folder / "plain.mp4")
    _describe(folder, "plain.mp4", {})


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Mutate a clip, or one image of a folder, once to four times."""
    options = rng.choice(OPTIONS) | ({"isolated": True} if rng.random() < ISOLATED else {})
    if rng.random() < 0.06:
        return _write_images(rng, sources, folder, options)
    name = rng.choice(sorted(CLIPS))
    data, done = (sources / name).read_bytes(), []
    structured = STRUCTURED.get(name.rpartition(".")[2])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        mutate = structured if structured and data and rng.random() < 0.65 else mutate_bytes
        try:
            data, what = mutate(rng, data or b"\0")
        except (LookupError, ValueError, struct.error):  # a change before has left no structure
            data, what = mutate_bytes(rng, data or b"\0")
        done.append(what)
    if rng.random() < 0.05:
        other = rng.choice(sorted(CLIPS))
        cut = rng.choice((16, 100, 1000))
        data = (sources / other).read_bytes()[:cut] + data[cut:]
        done.append(f"the first {cut} bytes of {other}")
    suffix = rng.choice(sorted(CLIPS)).rpartition(".")[2] if rng.random() < 0.05 else name.rpartition(".")[2]
    file = f"video.{suffix}"
    (folder / file).write_bytes(data)
    _describe(folder, file, options)
    return f"{name} {_said(options)}: {'; '.join(done)}"


def _write_images(rng: Random, sources: Path, folder: Path, options: dict[str, Any]) -> str:
    shutil.copytree(sources / "images", folder / "images")
    chosen = rng.choice(sorted((folder / "images").iterdir()))
    data, what = mutate_bytes(rng, chosen.read_bytes())
    chosen.write_bytes(data)
    if rng.random() < 0.2:
        (folder / "images" / "004.png").symlink_to(rng.choice(("004.png", "/dev/zero", "../images", "nowhere")))
        what += "; a link"
    _describe(folder, "images", options)
    return f"{chosen.name} {_said(options)}: {what}"


def _said(options: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


def _describe(folder: Path, file: str, options: dict[str, Any]) -> None:
    (folder / "case.json").write_text(json.dumps({"file": file, "options": options}))


def check(folder: Path) -> str:
    """Read the video, and check what a reader of it relies on."""
    case = json.loads((folder / "case.json").read_text())
    wishes = {name: value for name, value in case["options"].items() if name not in ("scaled", "isolated")}
    read = _read_isolated if "isolated" in case["options"] else _read_here
    video = read(folder / case["file"], "scaled" in case["options"], wishes)
    check_video(video, wishes)
    return "damaged" if video.damage is not None else "whole"


def _read_here(path: Path, scaled: bool, wishes: dict[str, Any]) -> Any:
    from aviot.video import ReadLimits, read_video

    return read_video(path, transform=_scale if scaled else None, limits=ReadLimits(seconds=SECONDS), **wishes)


def _read_isolated(path: Path, scaled: bool, wishes: dict[str, Any]) -> Any:
    try:
        from aviot.video.checks import ReadLimits
        from aviot.video.frames import Scaling
        from aviot.video.isolated import read_isolated
    except ModuleNotFoundError:
        return _read_here(path, scaled, wishes)
    limits = ReadLimits(seconds=SECONDS)
    return read_isolated(path, transform=Scaling(SIDE) if scaled else None, limits=limits, **wishes)


def _scale(frame: Any) -> Any:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.fromarray(frame).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def check_video(video: Any, options: dict[str, Any]) -> None:
    """Raise Broken unless shapes, times and counts of a video fit each other."""
    frames, times, indices = video.frames, video.times, video.indices
    require(len(video) >= 1, "there is no frame")
    require(
        len(frames) == len(times) == len(indices), f"{len(frames)} frames, {len(times)} times, {len(indices)} numbers"
    )
    require(frames.ndim == 4 and frames.shape[3] == 3 and str(frames.dtype) == "uint8", f"frames are {frames.shape}")
    require(len(frames) <= options.get("frames", options.get("max_frames", 224)), f"{len(frames)} frames are too many")
    _require_increasing(indices, "frame numbers")
    require(indices[0] >= 0 and indices[-1] < video.total, f"frame numbers {indices} of {video.total}")
    require(all(math.isfinite(time) for time in times), f"times are not finite: {times[:5]}")
    _require_increasing(times, "times")
    require(times[0] >= 0, f"the first time is {times[0]}")
    require(math.isfinite(video.duration) and video.duration > 0, f"the duration is {video.duration}")
    require(times[-1] <= video.duration, f"the last time is {times[-1]} of {video.duration} s")
    require(math.isfinite(video.fps) and video.fps > 0, f"the frame rate is {video.fps}")
    require(video.damage is None or bool(str(video.damage)), "there is damage, and no word about it")


def _require_increasing(values: Any, what: str) -> None:
    for before, after in pairwise(values):
        if after <= before:
            raise Broken(f"{what} do not increase: {before}, {after}")


def errors() -> tuple[type[Exception], ...]:
    """Return what a video that cannot be read raises."""
    from aviot.video import VideoError

    return (VideoError,)


TARGET = Target(
    name="videos",
    prepare=prepare,
    control=control,
    write=write,
    check=check,
    errors=errors,
    modules=(
        "aviot.video.read",
        "aviot.video.files",
        "av.subtitles.stream",
        "PIL.WebPImagePlugin",
    ),
)
