"""Damaged files: the decodable part is the video, undecodable files are refused, nothing crashes."""

import io
import struct
import subprocess
import sys
import time
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from clips import encode, number_of

from aviot.data.dataset import VideoDataset
from aviot.explain.pictures import LARGEST_SIDE, split_thumbnails
from aviot.video import Damage, Scaling, VideoError, decode, files, read_video, structure

GOP = {"g": "10", "bf": "2", "keyint_min": "10", "sc_threshold": "0"}
MUTANTS = 300


def noisy(count, seed=0):
    """Return frames that do not compress, so that a truncated file ends inside a packet."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(count)]


@pytest.mark.parametrize("suffix", ["mkv", "ts", "flv", "avi"])
@pytest.mark.parametrize("share", [0.35, 0.7, 0.999])
def test_a_truncated_file_is_a_shorter_video(tmp_path, suffix, share):
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


VP8 = {"g": "10", "cpu-used": "8", "deadline": "realtime"}
FRONT = {"movflags": "faststart"}
DECLARING = {  # containers whose header declares the duration
    "mkv": ("libx264", {"options": GOP}),
    "webm": ("libvpx", {"options": VP8}),
    "mp4": ("libx264", {"options": GOP, "muxing": FRONT}),
    "mov": ("mjpeg", {"pixels": "yuvj420p", "muxing": FRONT}),
    "avi": ("mpeg4", {"options": GOP}),
    "flv": ("libx264", {"options": GOP}),
    "asf": ("wmv2", {"options": {"g": "10"}}),
    "ivf": ("libvpx", {"options": VP8}),
}
UNDECLARED = {  # containers that only show that they are incomplete
    "ts": ("libx264", {"options": GOP}),
    "ogg": ("libvpx", {"options": VP8}),
    "gif": ("gif", {"pixels": "rgb8", "rate": 10}),
    "mpg": ("mpeg2video", {"options": GOP}),
    "apng": ("apng", {"pixels": "rgb24"}),
    "mp4": ("libx264", {"options": GOP, "muxing": {"movflags": "frag_keyframe+empty_moov"}}),
}


def warned(caplog, path):
    """Return the warnings about one file since the last call."""
    messages = [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]
    caplog.clear()
    return messages


@pytest.mark.parametrize("suffix", DECLARING)
def test_the_loss_of_a_truncated_file_is_in_seconds(tmp_path, caplog, suffix):
    codec, settings = DECLARING[suffix]
    path = encode(tmp_path / f"cut.{suffix}", codec, pictures=noisy(60), **settings)
    data, whole = path.read_bytes(), read_video(path)
    assert (whole.damage, warned(caplog, path)) == (None, [])
    for share in (0.4, 0.6, 0.9):
        path.write_bytes(data[: int(share * len(data))])
        video = read_video(path)
        assert isinstance(video.damage, Damage)
        assert video.damage.claimed_seconds == pytest.approx(whole.duration, abs=0.1)
        assert video.damage.missing_seconds == pytest.approx(whole.duration - video.duration, abs=0.1)
        assert warned(caplog, path) == [f"{path} is damaged: {video.damage}; what can be decoded is used"]


@pytest.mark.parametrize("suffix", UNDECLARED)
def test_a_truncated_file_without_a_duration_is_damaged_too(tmp_path, caplog, suffix):
    codec, settings = UNDECLARED[suffix]
    path = encode(tmp_path / f"cut.{suffix}", codec, pictures=noisy(60), **settings)
    data = path.read_bytes()
    assert (read_video(path).damage, warned(caplog, path)) == (None, [])
    for share in (0.41, 0.62, 0.93):
        path.write_bytes(data[: int(share * len(data))])
        video = read_video(path)
        assert video.damage is not None
        assert video.damage.decoder_errors >= 1
        assert len(warned(caplog, path)) == 1


@pytest.mark.parametrize("suffix", ["mkv", "webm", "avi", "flv"])
def test_zeros_at_the_end_are_missing_video(tmp_path, suffix):
    codec, settings = DECLARING[suffix]
    path = encode(tmp_path / f"zeros.{suffix}", codec, pictures=noisy(60), **settings)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2] + bytes(size - size // 2))
    video = read_video(path)
    assert video.damage.missing_seconds == pytest.approx(2.4 - video.duration, abs=0.1)


@pytest.mark.parametrize(("suffix", "codec"), [("mkv", "ffv1"), ("webm", "libvpx"), ("ogg", "libvpx")])
def test_a_gap_that_the_demuxer_skips_is_missing_video(tmp_path, suffix, codec):
    options = VP8 if codec == "libvpx" else {}
    muxing = {} if suffix == "ogg" else {"cluster_time_limit": "400"}
    path = encode(tmp_path / f"hole.{suffix}", codec, pictures=noisy(60), options=options, muxing=muxing)
    data = bytearray(path.read_bytes())
    first, last = int(0.4 * len(data)), int(0.6 * len(data))
    data[first:last] = bytes(last - first)
    path.write_bytes(data)
    video = read_video(path)
    assert video.duration == pytest.approx(2.4, abs=0.05)
    assert 0.3 < video.damage.missing_seconds < 1.2
    assert video.damage.claimed_seconds == pytest.approx(2.4, abs=0.1)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("h264.mp4", "libx264"), ("hevc.mp4", "libx265"), ("mpeg4.avi", "mpeg4"), ("mpeg2.ts", "mpeg2video")],
)
@pytest.mark.parametrize("sampling", [{"fps": 25}, {"fps": 2}])
def test_packets_that_do_not_decode_are_counted(tmp_path, caplog, name, codec, sampling):
    options = {"x265-params": "keyint=10:log-level=none"} if codec == "libx265" else GOP
    path = encode(tmp_path / name, codec, pictures=noisy(60), options=options)
    data, rng = bytearray(path.read_bytes()), np.random.default_rng(0)
    hit = packets_of(path)[1::2]
    for place, size, _ in hit:
        for offset in rng.integers(size // 4, size, 8).tolist():
            data[place + offset] ^= int(rng.integers(1, 256))
        if codec == "libx265":  # its decoder takes any bits for a picture, but not these
            data[place + 4 : place + size] = bytes(size - 4)
    path.write_bytes(data)
    video = read_video(path, **sampling)
    damage = video.damage
    assert damage is not None
    assert damage.missing_seconds == pytest.approx((60 - video.total) / 25, abs=0.15)  # pictures that are left out
    assert 1 <= damage.decoder_errors <= 60
    assert sampling["fps"] == 2 or damage.decoder_errors > 5
    assert f"{damage.decoder_errors} decoder error" in caplog.text


def test_pictures_that_cannot_be_decoded_are_missing_video(tmp_path, caplog):
    path = encode(tmp_path / "holes.mp4", pictures=noisy(60), options=GOP)
    blank(path, packets_of(path)[20:50])
    video = read_video(path, fps=25)
    assert video.total == 30
    assert (video.damage.claimed_seconds, video.damage.missing_seconds) == (2.4, 1.2)
    assert "1.2 of 2.4 s are missing (50 %)" in caplog.text


def test_a_packet_is_counted_once_however_often_it_is_decoded(tmp_path):
    path = encode(tmp_path / "tail.mp4", options=GOP)
    broken = packets_of(path)[50:]
    blank(path, broken)
    for sampling in ({"frames": 7}, {"fps": 25}, {"fps": 3}):
        assert 1 <= read_video(path, **sampling).damage.decoder_errors <= len(broken)


def long_sound(path, codec="libx264", **settings):
    """Write a video of 2.4 seconds with 6.4 seconds of audio."""
    return encode(path, codec, sound=True, sound_frames=50, options=GOP, **settings)


def without_duration_tag(tmp_path):
    path = long_sound(tmp_path / "whole.mkv")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"DURATION", b"DURATIOM"))
    return path


def long_last_frame(tmp_path, suffix):
    """Write a video whose last frame lasts seconds: Matroska stores the duration of the file, not of the frame."""
    pts = [*range(0, 1000, 40), 1200, 3000]
    path = encode(tmp_path / f"still.{suffix}", pictures=27, pts=pts, time_base=Fraction(1, 1000), options=GOP)
    data = bytearray(path.read_bytes())
    if suffix == "mkv":
        place = data.index(bytes.fromhex("448988")) + 3  # Duration, eight bytes
        struct.pack_into(">d", data, place, 9000.0)
    path.write_bytes(data.replace(b"DURATION", b"DURATIOM"))
    return path


def streamed(tmp_path, suffix, codec="libx264"):
    """Write a file as to a pipe: sizes and durations in its headers stay unknown."""
    buffer = io.BytesIO()
    pipe = SimpleNamespace(write=buffer.write)
    encode(pipe, codec, container={"mkv": "matroska"}.get(suffix, suffix), options=GOP)
    path = tmp_path / f"pipe.{suffix}"
    path.write_bytes(buffer.getvalue())
    return path


def middle_of_a_broadcast(tmp_path):
    path = encode(tmp_path / "broadcast.ts", pictures=noisy(60), options=GOP)
    path.write_bytes(path.read_bytes()[188 * 50 :])
    return path


def two_recordings(tmp_path):
    data = encode(tmp_path / "one.ts", options=GOP).read_bytes()
    path = tmp_path / "two.ts"
    path.write_bytes(data + data)
    return path


def truncated_inside_an_open_group(tmp_path, suffix):
    """Write a file whose frames before the first keyframe's time depend on a group that is not in it."""
    parameters = "open-gop=1:keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0"
    source = encode(tmp_path / f"open.{suffix}", options={"x264-params": parameters})
    path = tmp_path / f"cut.{suffix}"
    with av.open(str(source)) as reader, av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(reader.streams.video[0])
        packets = [packet for packet in reader.demux(video=0) if packet.size]
        second = [i for i, packet in enumerate(packets) if packet.is_keyframe][1]
        for packet in packets[second:]:
            packet.stream = stream
            out.mux(packet)
    return path


def followed_by(path, tail):
    path.write_bytes(path.read_bytes() + tail)
    return path


WHOLE = {
    "longer sound in MKV": lambda folder: long_sound(folder / "whole.mkv"),
    "longer sound, no tag": without_duration_tag,
    "longer sound in MP4": lambda folder: long_sound(folder / "whole.mp4"),
    "longer sound in FLV": lambda folder: long_sound(folder / "whole.flv"),
    "longer sound in AVI": lambda folder: long_sound(folder / "whole.avi", "mpeg4"),
    "long last frame in MKV": lambda folder: long_last_frame(folder, "mkv"),
    "long last frame in MP4": lambda folder: long_last_frame(folder, "mp4"),
    "long last frame in FLV": lambda folder: long_last_frame(folder, "flv"),
    "piped MKV": lambda folder: streamed(folder, "mkv"),
    "piped AVI": lambda folder: streamed(folder, "avi", "mpeg4"),
    "piped FLV": lambda folder: streamed(folder, "flv"),
    "live MKV": lambda folder: encode(folder / "live.mkv", options=GOP, muxing={"live": "1"}),
    "small clusters": lambda folder: encode(folder / "c.mkv", options=GOP, muxing={"cluster_time_limit": "200"}),
    "fragments": lambda folder: encode(folder / "f.mp4", options=GOP, muxing={"movflags": "frag_keyframe"}),
    "segment index": lambda folder: encode(folder / "f.mp4", options=GOP, muxing={"movflags": "dash+global_sidx"}),
    "broadcast": middle_of_a_broadcast,
    "two recordings": two_recordings,
    "open group in MKV": lambda folder: truncated_inside_an_open_group(folder, "mkv"),
    "open group in TS": lambda folder: truncated_inside_an_open_group(folder, "ts"),
    "MKV and zeros": lambda folder: followed_by(encode(folder / "z.mkv", options=GOP), bytes(5000)),
    "MP4 and zeros": lambda folder: followed_by(encode(folder / "z.mp4", options=GOP), bytes(5000)),
    "MP4 and noise": lambda folder: followed_by(encode(folder / "n.mp4", options=GOP), bytes(range(7, 256)) * 9),
    "GIF and zeros": lambda folder: followed_by(encode(folder / "z.gif", "gif", pixels="rgb8"), bytes(50)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_intact_files_are_not_reported_as_damaged(tmp_path, caplog, name):
    path = WHOLE[name](tmp_path)
    for sampling in ({}, {"fps": 25}):
        assert read_video(path, **sampling).damage is None
    assert not caplog.records


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "avi"])
def test_endless_chains_of_empty_elements_are_not_followed(tmp_path, suffix):
    path = encode(tmp_path / f"chain.{suffix}", "mpeg4", options=GOP)
    element = {"mkv": b"\xec\x80", "mp4": b"\0\0\0\x08free", "avi": b"RIFF\0\0\0\0"}[suffix]
    path.write_bytes(path.read_bytes() + element * structure.MAX_STEPS * 4)
    begin = time.process_time()
    structure.ending_of(path, {"mkv": "matroska,webm", "mp4": "mov,mp4"}.get(suffix, suffix), 600)
    assert time.process_time() - begin < 5


def test_damage_as_text():
    assert str(Damage(10.0, 4.32, 0)) == "4.3 of 10.0 s are missing (43 %)"
    assert str(Damage(10.0, 0.0, 312)) == "312 decoder errors"
    assert str(Damage(2.4, 0.04, 1)) == "0.04 of 2.4 s are missing (2 %), 1 decoder error"
    assert str(Damage(7200.0, 0.0, 1234)) == "1,234 decoder errors"
    fields = {"claimed_seconds": 10.0, "missing_seconds": 4.32, "decoder_errors": 0}
    assert asdict(Damage(10.0, 4.32, 0)) == fields


def test_damage_goes_with_the_video(tmp_path, caplog):
    """Pages and the app store thumbnails beside the frames; training uses what can be decoded."""
    path = encode(tmp_path / "cut.mkv", pictures=noisy(60), options=GOP)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    video, _ = split_thumbnails(read_video(path, transform=Scaling(32, LARGEST_SIDE)), 32)
    assert video.damage.missing_seconds > 1
    caplog.clear()
    processor = SimpleNamespace(read=read_video, pixels=lambda frames: frames)
    clip = VideoDataset._clip(SimpleNamespace(features=None, processor=processor), path)
    assert len(clip) == len(video)
    assert "is damaged" in caplog.text


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


@pytest.mark.parametrize("sampling", [{"frames": 7}, {"fps": 25}, {"fps": 3}])
def test_a_broken_last_group_is_left_out_and_frames_are_sampled_anew(tmp_path, sampling, monkeypatch):
    path = encode(tmp_path / "tail.mp4", options=GOP)
    blank(path, packets_of(path)[50:])
    if "frames" in sampling:
        monkeypatch.setattr(files, "_read_sequentially", None)  # a second choice is enough
    video = read_video(path, **sampling)
    assert [number_of(frame) for frame in video.frames] == list(video.indices)
    assert max(video.indices) < 50
    assert video.times == pytest.approx([i / 25 for i in video.indices])
    if "frames" in sampling:
        assert (len(video), video.indices[-1], video.total, video.duration) == (7, 49, 50, pytest.approx(2.0))


def test_a_gap_in_the_middle_is_skipped(tmp_path):
    path = encode(tmp_path / "hole.mp4", options=GOP)
    blank(path, packets_of(path)[20:30])
    video = read_video(path, frames=60)
    shown = [number_of(frame) for frame in video.frames]
    assert shown == [*range(20), *range(30, 60)]
    assert video.times == pytest.approx([i / 25 for i in shown])
    assert video.duration == pytest.approx(2.4)


def test_gaps_everywhere_are_found_by_sequential_decoding(tmp_path):
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


def test_a_container_that_cannot_seek_is_read_sequentially(tmp_path, monkeypatch):
    path = long_clip(tmp_path)
    monkeypatch.setattr(decode.SeekingDecoder, "_seek", lambda self, key, number: None)
    video = read_video(path, frames=4)
    assert [number_of(frame) for frame in video.frames] == [0, 83, 166, 249]


def test_a_seek_to_the_wrong_place_is_detected(tmp_path, monkeypatch):
    path = long_clip(tmp_path)
    original = decode.SeekingDecoder._seek

    def astray(self, key, number):
        return original(self, 225 if key else 0, number)

    monkeypatch.setattr(decode.SeekingDecoder, "_seek", astray)
    video = read_video(path, frames=4)
    assert [number_of(frame) for frame in video.frames] == [0, 83, 166, 249]


def test_packets_that_are_not_in_the_index_lead_to_sequential_reading(tmp_path, monkeypatch):
    path = long_clip(tmp_path)
    monkeypatch.setattr(files.SeekingDecoder, "_find", lambda self, number: None)
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
