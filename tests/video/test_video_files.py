"""Video files of many kinds, compared frame by frame with sequential decoding."""

import struct
from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from clips import encode, number_of, numbered, repeat, sequential

from aviot.video import files, read_video
from aviot.video.decode import upright

GOP = {"g": "12", "bf": "3"}
OPEN = "open-gop=1:keyint=12:bframes=3:b-adapt=0:scenecut=0:log-level=none"
FAST_VP9 = {"g": "12", "cpu-used": "8", "deadline": "realtime"}
KINDS = {
    "h264.mp4": ("libx264", {"options": GOP}),
    "sound.mp4": ("libx264", {"options": GOP, "sound": True}),
    "h264.mkv": ("libx264", {"options": GOP, "rate": 30}),
    "h264.ts": ("libx264", {"options": GOP, "rate": Fraction(30000, 1001)}),
    "h264.flv": ("libx264", {"options": GOP}),
    "h264.avi": ("libx264", {"options": GOP}),
    "raw.h264": ("libx264", {"options": GOP, "container": "h264"}),
    "open.ts": ("libx264", {"options": {"x264-params": OPEN.replace(":log-level=none", "")}}),
    "open.mp4": ("libx265", {"options": {"x265-params": OPEN}}),
    "refresh.mkv": ("libx264", {"options": {"x264-params": "intra-refresh=1:keyint=12:scenecut=0"}}),
    "mpeg4.avi": ("mpeg4", {"options": {"g": "12", "bf": "2"}}),
    "mpeg2.mpg": ("mpeg2video", {"options": {"g": "12", "bf": "2"}}),
    "mjpeg.mov": ("mjpeg", {"pixels": "yuvj420p"}),
    "raw.mjpeg": ("mjpeg", {"pixels": "yuvj420p", "container": "mjpeg"}),
    "vp9.webm": ("libvpx-vp9", {"options": FAST_VP9}),
    "vp8.webm": ("libvpx", {"options": {"g": "20", "auto-alt-ref": "1", "lag-in-frames": "16", "cpu-used": "4"}}),
    "anim.gif": ("gif", {"pixels": "rgb8", "rate": 10}),
    "anim.apng": ("apng", {"pixels": "rgb24"}),
    "deep.mkv": ("ffv1", {"pixels": "yuv420p10le"}),
    "gray.mkv": ("ffv1", {"pixels": "gray"}),
    "alpha.mov": ("qtrle", {"pixels": "argb"}),
    "planar.mkv": ("ffv1", {"pixels": "gbrp10le"}),
    "odd.mp4": ("libx264", {"size": (321, 179), "pixels": "yuv444p", "options": GOP}),
    "odd.avi": ("mpeg4", {"size": (321, 179)}),
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("clips"), {}

    def make(name):
        if name not in made:
            codec, settings = KINDS[name]
            made[name] = encode(folder / name, codec, **settings)
        return made[name]

    return make


@pytest.mark.parametrize("name", KINDS)
def test_chosen_frames_are_those_of_decoding_everything(clip, name):
    path = clip(name)
    everything = sequential(path)
    rate = float(KINDS[name][1].get("rate", 25))
    assert len(everything) == 60
    for options in ({}, {"frames": 5}, {"frames": 1000}, {"fps": 20, "max_frames": 7}):
        video = read_video(path, **options)
        assert video.total == 60
        assert video.damage is None
        assert video.fps == pytest.approx(rate)
        assert video.duration == pytest.approx(60 / rate)
        assert video.times == pytest.approx([i / rate for i in video.indices], abs=1e-9)
        assert len(video.frames) == len(video)
        for index, frame in zip(video.indices, video.frames, strict=True):
            assert number_of(frame) == index
            assert np.abs(frame.astype(int) - everything[index]).max() <= 1
    assert video.name == path.name


def test_default_rate_is_two_per_second(clip):
    assert read_video(clip("h264.mkv")).indices == (0, 15, 30, 45)
    assert read_video(clip("h264.mp4")).indices == (0, 12, 24, 36, 48)


@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
def test_long_videos_are_read_by_seeking(tmp_path, container, monkeypatch):
    one = encode(tmp_path / "one.mp4", pictures=200, options={"g": "50", "bf": "3", "keyint_min": "50"})
    path = repeat(one, tmp_path / f"long.{container}", 20)
    monkeypatch.setattr(files, "_read_sequentially", None)  # must not be needed
    decoded = []
    original = files.VideoContainer.decode
    monkeypatch.setattr(files.VideoContainer, "decode", lambda *a, **k: decoded.append(1) or original(*a, **k))
    video = read_video(path, frames=12)
    assert video.total == 4000
    assert [number_of(frame) for frame in video.frames] == [i % 200 for i in video.indices]
    assert video.times == pytest.approx([i / 25 for i in video.indices])
    assert len(decoded) < 12 * 55


@pytest.mark.parametrize("container", ["mkv", "mp4"])
def test_variable_frame_rate_keeps_true_times(tmp_path, container):
    pts = np.cumsum(np.random.default_rng(3).integers(10, 300, 60)).tolist()
    path = encode(tmp_path / f"v.{container}", pts=pts, time_base=Fraction(1, 1000), options=GOP)
    video = read_video(path, frames=60)
    assert video.times == pytest.approx([(t - pts[0]) / 1000 for t in pts])
    assert video.duration > video.times[-1]
    assert [number_of(frame) for frame in video.frames] == list(range(60))
    assert video.fps == pytest.approx(60 / video.duration)
    assert video.damage is None


@pytest.mark.parametrize("start", [-50, 250])
def test_times_count_from_the_first_frame(tmp_path, start):
    path = encode(tmp_path / "late.mkv", pts=[start + i for i in range(60)], time_base=Fraction(1, 25), options=GOP)
    video = read_video(path)
    assert video.times == pytest.approx([i / 25 for i in video.indices])
    assert video.duration == pytest.approx(2.4)


def boxes(data, kind):
    """Yield the offsets of the content of MP4 boxes of a kind."""
    at = data.find(kind)
    while at >= 0:
        yield at + len(kind)
        at = data.find(kind, at + 1)


def test_frames_outside_the_edit_list_are_dropped(tmp_path):
    path = encode(tmp_path / "edited.mp4", options=GOP)
    data = bytearray(path.read_bytes())
    (elst,) = boxes(data, b"elst")
    media_time = struct.unpack_from(">i", data, elst + 12)[0]
    struct.pack_into(">i", data, elst + 12, media_time + 7 * 512)  # seven frames of 1/25 s at 12800 ticks
    path.write_bytes(data)
    video = read_video(path, frames=60)
    assert [number_of(frame) for frame in video.frames] == list(range(7, 60))
    assert video.total == 53
    assert video.times[:2] == (0.0, 0.04)
    assert video.damage is None


ONE = 1 << 16
MATRICES = {
    "as is": ((ONE, 0, 0, ONE), lambda p: p),
    "left": ((0, -ONE, ONE, 0), lambda p: np.rot90(p, 1)),
    "over": ((-ONE, 0, 0, -ONE), lambda p: np.rot90(p, 2)),
    "right": ((0, ONE, -ONE, 0), lambda p: np.rot90(p, 3)),
    "mirrored": ((-ONE, 0, 0, ONE), lambda p: p[:, ::-1]),
    "upside down": ((ONE, 0, 0, -ONE), lambda p: p[::-1]),
    "transposed": ((0, ONE, ONE, 0), lambda p: p.transpose(1, 0, 2)),
    "tilted": ((65000, 8000, -8000, 65000), lambda p: p),
}


@pytest.mark.parametrize("name", MATRICES)
def test_pictures_are_turned_upright(tmp_path, name):
    (a, b, c, d), turn = MATRICES[name]
    picture = numbered(0b10110001)
    picture[:20, :, 0] = 90
    path = encode(tmp_path / "turned.mp4", pictures=[picture] * 5)
    flat = read_video(path, frames=1).frames[0]
    data = bytearray(path.read_bytes())
    (tkhd,) = boxes(data, b"tkhd")
    struct.pack_into(">9i", data, tkhd + 40, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    frame = read_video(path, frames=1).frames[0]
    assert np.array_equal(frame, turn(flat))
    assert frame.flags.c_contiguous


def test_upright_agrees_with_pyav_on_which_way_is_left(tmp_path):
    path = tmp_path / "left.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        if not hasattr(stream, "set_display_rotation"):
            pytest.skip("this PyAV cannot write a rotation")
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.set_display_rotation(90)
        picture = av.VideoFrame.from_ndarray(numbered(0b11110000), format="rgb24")
        out.mux(stream.encode(picture))
        out.mux(stream.encode(None))
    frame = read_video(path).frames[0]
    assert frame.shape == (64, 48, 3)
    assert frame[48:].mean() > 200 > 60 > frame[:16].mean()  # counter-clockwise: what was left is below
    assert np.array_equal(upright(frame, None), frame)


MATRIX = {"bt709": (1, 0.2126, 0.0722), "bt601": (5, 0.299, 0.114), "bt2020": (9, 0.2627, 0.0593)}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", [*MATRIX, "unsaid"])
@pytest.mark.parametrize(("codec", "suffix"), [("libx264", "mp4"), ("ffv1", "mkv")])
def test_colours_follow_matrix_and_range(tmp_path, name, full, codec, suffix):
    code, kr, kb = MATRIX.get(name, (2, *MATRIX["bt601"][1:]))
    red, green, blue = colour = (200, 60, 30)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    chroma = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    scale, offset, spread = (1, 0, 1) if full else (219 / 255, 16, 224 / 255)
    values = [offset + scale * luma, *(128 + spread * part for part in chroma)]
    path = tmp_path / f"colour.{suffix}"
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for target in (stream.codec_context, frame := av.VideoFrame(64, 48, "yuv420p")):
            target.colorspace, target.color_range = code, 2 if full else 1
        for plane, value in zip(frame.planes, values, strict=True):
            plane.update(bytes([round(value)]) * plane.buffer_size)
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    assert read_video(path).frames[0].reshape(-1, 3).mean(0) == pytest.approx(colour, abs=4)


def test_the_transform_gets_each_frame_once_and_its_result_is_stored(clip):
    seen = []

    def halve(frame):
        seen.append(number_of(frame))
        return frame[::2, ::2].astype(np.float32) / 255

    video = read_video(clip("h264.mp4"), transform=halve)
    assert seen == list(video.indices)
    assert video.frames.shape == (5, 24, 32, 3)
    assert video.frames.dtype == np.float32


def test_the_transform_may_make_tensors(clip):
    video = read_video(clip("h264.mp4"), transform=lambda frame: torch.from_numpy(frame).permute(2, 0, 1))
    assert isinstance(video.frames, torch.Tensor)
    assert video.frames.shape == (5, 3, 48, 64)


def test_a_second_decoder_agrees(clip):
    import cv2

    for name in ("h264.mp4", "h264.mkv", "mpeg4.avi"):
        capture, frames = cv2.VideoCapture(str(clip(name))), []
        while (read := capture.read())[0]:
            frames.append(read[1][..., ::-1])
        assert np.abs(read_video(clip(name), frames=60).frames.astype(int) - np.stack(frames)).max() <= 2
