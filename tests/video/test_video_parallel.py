"""Files that several decoders decode, keyframes, the GPU's decoder, and frames that are used while others arrive."""

import logging
import threading

import numpy as np
import pytest
from clips import encode, number_of, numbered, sequential

import aviot.video.container as container
from aviot.video import Sampling, Scaling, VideoError, read_video
from aviot.video import parallel as parallel_module
from aviot.video.background import Arrivals, BackgroundReading, ReadingStopped
from aviot.video.container import VideoContainer
from aviot.video.packets import index_packets
from aviot.video.parallel import plan_parts

CODECS = {
    "h264, closed groups": ("libx264", "clip.mp4", {"g": "50", "bf": "3", "sc_threshold": "0"}),
    "h264, open groups": ("libx264", "clip.mkv", {"g": "50", "bf": "3", "x264-params": "open-gop=1"}),
    "h264, gradual refresh": (
        "libx264",
        "clip.mp4",
        {"g": "50", "sc_threshold": "0", "x264-params": "intra-refresh=1"},
    ),
    "h264, transport stream": ("libx264", "clip.ts", {"g": "50"}),
    "hevc": ("libx265", "clip.mp4", {"x265-params": "keyint=50:scenecut=0:open-gop=0:log-level=none"}),
    "vp9": ("libvpx-vp9", "clip.webm", {"g": "50", "deadline": "realtime", "cpu-used": "8"}),
    "mpeg4": ("mpeg4", "clip.mp4", {"g": "50"}),
}


@pytest.fixture
def processors(monkeypatch):
    """Set the number of processors that decoding sees."""

    def set_to(count):
        monkeypatch.setattr(container, "cpu_count", lambda: count)
        monkeypatch.setattr(parallel_module, "cpu_count", lambda: count)

    return set_to


def clip(folder, kind="h264, closed groups", frames=255):
    codec, name, options = CODECS[kind]
    return encode(folder / name, codec, pictures=frames, options=options)


@pytest.mark.parametrize("kind", CODECS)
def test_frames_are_the_same_with_any_number_of_decoders(tmp_path, processors, kind):
    path, read = clip(tmp_path, kind), []
    whole = sequential(path)
    for count in (1, 2, 3, 8):
        processors(count)
        for how in ({"frames": 40}, {"fps": 12.5}):
            video = read_video(path, **how)
            expected = np.stack([whole[index] for index in video.indices])
            assert np.array_equal(video.frames, expected)
            read.append((video.indices, video.times, video.damage))
    assert read[0::2] == [read[0]] * 4
    assert read[1::2] == [read[1]] * 4


def test_several_decoders_are_used_where_groups_are_closed_and_one_where_they_are_not(tmp_path):
    parts = {}
    for kind in CODECS:
        (tmp_path / kind).mkdir()
        path = clip(tmp_path / kind, kind)
        with VideoContainer(path) as source:
            parts[kind] = len(plan_parts(index_packets(source), tuple(range(0, 255, 5))))
    assert parts["h264, closed groups"] == parts["hevc"] == 6
    assert parts["h264, gradual refresh"] == parts["h264, transport stream"] == parts["mpeg4"] == 1


def test_parts_cover_every_packet_that_one_decoder_would_decode(tmp_path):
    with VideoContainer(clip(tmp_path)) as source:
        index = index_packets(source)
    parts = plan_parts(index, tuple(range(0, 255, 5)))
    assert [part.start for part in parts[1:]] == [part.end + 1 for part in parts[:-1]]
    assert sorted(slot for part in parts for slot in part.wanted.values()) == list(range(51))


def test_a_damaged_group_is_left_to_one_decoder(tmp_path, processors, caplog):
    path = clip(tmp_path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 600] = bytes(600)
    path.write_bytes(data)
    videos = []
    for count in (1, 4):
        processors(count)
        with caplog.at_level(logging.WARNING):
            videos.append(read_video(path, frames=60))
    one, several = videos
    assert one.damage is not None
    assert (one.damage, one.indices, one.times) == (several.damage, several.indices, several.times)
    assert np.array_equal(one.frames, several.frames)


def test_a_callers_transform_is_called_by_one_thread_at_a_time(tmp_path, processors):
    processors(4)
    threads = set()

    def transform(frame):
        threads.add(threading.current_thread())
        return frame

    read_video(clip(tmp_path), frames=40, transform=transform)
    assert threads == {threading.current_thread()}


def test_keyframes_are_the_nearest_ones_with_their_own_times(tmp_path):
    path = clip(tmp_path)
    video = read_video(path, fps=1, sampling="keyframes")
    assert video.indices == (0, 50, 100, 150, 200, 250)
    assert video.times == pytest.approx([0, 2, 4, 6, 8, 10])
    assert [number_of(frame) for frame in video.frames] == [0, 50, 100, 150, 200, 250]
    assert read_video(path, frames=3, sampling="keyframes").indices == (0, 150, 250)  # of 0, 127 and 254


def test_keyframes_of_a_file_without_them_are_exact_times(tmp_path):
    path = encode(tmp_path / "clip.gif", "gif", pictures=30, rate=10, pixels="rgb8")
    assert read_video(path, frames=7, sampling="keyframes").indices == read_video(path, frames=7).indices


def test_keyframes_of_an_array_are_its_frames():
    frames = np.stack([numbered(i) for i in range(9)])
    assert read_video(frames, source_fps=2, sampling="keyframes").indices == tuple(range(9))


@pytest.mark.parametrize(("name", "value"), [("sampling", "keyframe"), ("decoder", "gpu")])
def test_unknown_names_are_refused_with_the_known_ones(tmp_path, name, value):
    with pytest.raises(VideoError, match=f"{name} must be .*, got '{value}'"):
        read_video(clip(tmp_path, frames=5), **{name: value})
    with pytest.raises(VideoError, match="keyframes, got 'all'"):
        Sampling(mode="all")


def test_without_a_gpu_its_decoder_leaves_the_file_to_the_processor_and_says_so(tmp_path, monkeypatch, caplog):
    from aviot.video import hardware

    monkeypatch.setattr(hardware, "_gpu_is_there", lambda: False)
    path = clip(tmp_path, frames=20)
    expected = read_video(path, decoder="cpu")
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(read_video(path, decoder="auto").frames, expected.frames)
        assert caplog.text == ""
        assert np.array_equal(read_video(path, decoder="cuda").frames, expected.frames)
    assert "there is no NVIDIA GPU to decode on; it is decoded on the processor" in caplog.text


def test_frames_are_announced_in_order_and_complete(tmp_path, processors):
    path, seen = clip(tmp_path), []
    for count in (1, 4):
        processors(count)

        def progress(frames, arrived):
            seen.append((arrived, frames[:arrived].copy()))

        video = read_video(path, frames=40, transform=Scaling(16), progress=progress)
        assert [arrived for arrived, _ in seen] == sorted(arrived for arrived, _ in seen)
        assert seen[-1][0] == 40
        assert all(np.array_equal(frames, video.frames[:arrived]) for arrived, frames in seen)
        seen.clear()


def test_a_background_reading_is_the_reader_of_its_own_video_and_reads_any_other(tmp_path):
    path = clip(tmp_path, frames=60)
    with BackgroundReading(read_video, path, frames=10, transform=Scaling(16)) as reading:
        mine = reading(path, frames=10, transform=Scaling(16), fps=None)
        assert mine is reading.result()
        assert len(reading(path, frames=7, transform=Scaling(16))) == 7
        assert reading(path, frames=10, transform=Scaling(8)).frames.shape == (10, 8, 8, 3)


def test_an_error_of_a_background_reading_is_raised_where_it_is_waited_for(tmp_path):
    path = tmp_path / "none.mp4"
    path.write_bytes(b"no video")
    with BackgroundReading(read_video, path) as reading, pytest.raises(VideoError, match="not a video"):
        reading.result()


def test_a_reading_that_nobody_waits_for_ends_at_its_next_frame(tmp_path, processors):
    path = clip(tmp_path)
    for count in (1, 4):
        processors(count)
        arrivals = Arrivals()
        arrivals.stop()
        with pytest.raises(ReadingStopped):
            read_video(path, frames=40, transform=Scaling(16), progress=arrivals.note)
