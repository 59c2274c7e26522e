"""Sources that are not videos are refused with a clear message, at once and without opening another file."""

import os
import socket
import subprocess
import sys
import wave

import av
import numpy as np
import pytest
from clips import encode, numbered, silence

from aviot.video import VideoError, container, frames, packets, read_video


def error_of(source, **options):
    with pytest.raises(VideoError) as caught:
        read_video(source, **options)
    return str(caught.value)


def test_no_such_file(tmp_path):
    assert "there is no file" in error_of(tmp_path / "none.mp4")


@pytest.mark.parametrize("content", [b"plain words\n" * 300, b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n<<>>\nendobj\n" * 50])
@pytest.mark.parametrize("suffix", ["mp4", "txt", "pdf", "nfo"])
def test_documents(tmp_path, content, suffix):
    path = tmp_path / f"document.{suffix}"
    path.write_bytes(content)
    assert "not a video that FFmpeg can read" in error_of(path)


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes(tmp_path, seed):
    path = tmp_path / "noise.mp4"
    path.write_bytes(np.random.default_rng(seed).bytes(50_000))
    error_of(path)


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty.mp4"
    path.touch()
    assert "is empty (0 bytes)" in error_of(path)


def test_audio_only(tmp_path):
    with wave.open(str(tmp_path / "sound.wav"), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(16000))
    with av.open(str(tmp_path / "sound.m4a"), "w", format="mp4") as out:
        silence(out, out.add_stream("aac", rate=8000))
    assert "has no video stream" in error_of(tmp_path / "sound.wav")
    assert "has no video stream" in error_of(tmp_path / "sound.m4a")


@pytest.mark.parametrize("modern", [True, False])
def test_cover_art_is_not_a_video(tmp_path, modern, monkeypatch):
    path = tmp_path / "song.mp3"
    with av.open(str(path), "w") as out:
        sound = out.add_stream("mp3", rate=44100)
        cover = out.add_stream("png", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 48, "rgb24"
        picture = av.VideoFrame.from_ndarray(numbered(3), format="rgb24")
        out.mux(cover.encode(picture))
        out.mux(cover.encode(None))
        for i in range(20):
            frame = av.AudioFrame.from_ndarray(np.zeros((2, 1152), np.float32), format="fltp", layout="stereo")
            frame.sample_rate, frame.pts = 44100, i * 1152
            out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    with av.open(str(path)) as reader:
        assert len(reader.streams.video) == 1
    if not modern:
        monkeypatch.setattr(container, "hasattr", lambda *_: False, raising=False)
    assert "has no video stream" in error_of(path)


def test_devices_pipes_and_sockets_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in error_of(tmp_path / "pipe")
    assert "not a regular file" in error_of("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "not a regular file" in error_of(tmp_path / "s")


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:1/a.mp4",
        "rtsp://localhost/a",
        "concat:a.mp4|b.mp4",
        "pipe:0",
        "data:video/mp4;base64,AA==",
        "-",
    ],
)
def test_addresses_are_not_opened(address):
    assert "there is no file" in error_of(address)


def test_a_file_never_opens_another(tmp_path, monkeypatch):
    clip = encode(tmp_path / "clip.ts")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.m3u8").write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{clip}\n#EXT-X-ENDLIST\n")
    (tmp_path / "list.ffconcat").write_text("ffconcat version 1.0\nfile clip.ts\n")
    (tmp_path / "concat:clip.ts").write_text("words")
    for number in (1, 2):
        encode(tmp_path / f"still{number}.png", "png", pictures=1, pixels="rgb24", container="image2")
    (tmp_path / "still%d.png").write_bytes((tmp_path / "still1.png").read_bytes())
    for name in ("list.m3u8", "list.ffconcat", "concat:clip.ts", "still%d.png"):
        assert "not a video that FFmpeg can read" in error_of(name)


def test_names_with_colons_and_percent_signs_are_just_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("http:clip.mp4", "a%03d b.mp4", "ünï.mp4"):
        (tmp_path / name).write_bytes(encode(tmp_path / "clip.mp4", pictures=5).read_bytes())
        assert read_video(name).total == 5


def test_an_invalid_file_name():
    assert "cannot be read" in error_of("a\0b.mp4")


def test_giant_frames_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    path = encode(tmp_path / "clip.mp4", pictures=3)
    monkeypatch.setattr(container, "MAX_PIXELS", 64 * 48 - 1)
    assert "has pictures of 64x48" in error_of(path)


def test_frames_that_exceed_the_buffer_limit_are_refused_with_a_remedy(tmp_path, monkeypatch):
    path = encode(tmp_path / "clip.mp4")
    monkeypatch.setattr(frames.FrameBuffer.__init__, "__defaults__", (5 * 64 * 48 * 3 - 1,))
    assert "give read_video a transform=" in error_of(path)
    assert len(read_video(path, transform=lambda frame: frame[::2])) == 5


def test_more_packets_than_bytes_are_error_of(tmp_path, monkeypatch):
    path = encode(tmp_path / "clip.mp4")
    source = container.VideoContainer(path)
    packet = next(source.packets())
    monkeypatch.setattr(container.VideoContainer, "packets", lambda source: iter([packet] * 10**6))
    with pytest.raises(VideoError, match="claims more pictures than it has bytes"):
        packets.index_packets(source)


def test_frames_of_several_sizes_need_a_transform(tmp_path):
    path = encode(tmp_path / "clip.mp4")
    sizes = iter([(2, 2), (2, 2), (3, 2)])
    assert "frames must all have one size" in error_of(path, transform=lambda _: np.zeros(next(sizes)))
    assert "must return a NumPy array" in error_of(path, transform=lambda _: None)


@pytest.mark.parametrize(
    "option", [{"fps": 0}, {"max_frames": 0}, {"frames": -3}, {"frames": True}, {"fps": float("nan")}]
)
def test_options_are_checked_before_the_file_is(option):
    assert "must be a" in error_of("nowhere.mp4", **option)


def test_a_file_has_its_own_rate(tmp_path):
    assert "a video file has its own times" in error_of(encode(tmp_path / "clip.mp4", pictures=3), source_fps=3)


@pytest.mark.parametrize("source", [None, 3, [np.zeros((4, 4, 3), np.uint8)], b"clip.mp4"])
def test_other_types(source):
    assert "must be a path or an array" in error_of(source)


def test_the_decoder_is_loaded_only_for_files():
    code = "import sys, aviot.video, aviot.models; assert 'av' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
