"""Sources of live frames: each delivers what was put into it, at its times, and outlives damage."""

import http.server
import io
import threading
import time
from functools import partial

import numpy as np
import pytest
from clips import encode, number_of, numbered
from PIL import Image

from aviot.streaming.sources.base import FrameSource, LiveFrame, Player
from aviot.streaming.sources.containers import ConnectedStream, FilePlayback, PipedStream
from aviot.streaming.sources.opening import NetworkRefusedError, SourceOptions, open_source
from aviot.streaming.sources.pictures import FolderOfImages, RawFrames
from aviot.video import VideoError


def shown(source, stop=None):
    """Return the number that every frame shows, and its time."""
    found = [(number_of(frame.make()), frame.time) for frame in source.frames(stop or threading.Event())]
    return [number for number, _ in found], [time for _, time in found]


@pytest.fixture(scope="module")
def transport_stream(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips") / "clip.ts"
    return encode(path, container="mpegts", pictures=50, options={"g": "10"}).read_bytes()


@pytest.fixture(scope="module")
def jpegs():
    def one(number):
        data = io.BytesIO()
        Image.fromarray(numbered(number)).save(data, "JPEG", quality=95)
        return data.getvalue()

    return [one(number) for number in range(20)]


def test_a_file_is_played_whole(tmp_path):
    numbers, times = shown(FilePlayback(encode(tmp_path / "clip.mp4", pictures=60)))
    assert numbers == list(range(60))
    assert times == pytest.approx([i / 25 for i in range(60)])


def test_a_damaged_file_goes_on_behind_the_damage(tmp_path):
    path = encode(tmp_path / "clip.ts", container="mpegts", pictures=200, options={"g": "10"})
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    data[third : third + 4000] = bytes(np.random.default_rng(0).integers(0, 256, 4000, np.uint8))
    path.write_bytes(data)
    source = FilePlayback(path)
    numbers, _ = shown(source)
    assert numbers[-1] == 199
    assert source.damaged > 0
    assert 100 < len(numbers) < 200


def test_a_pipe_of_jpegs_has_times_of_arrival(jpegs):
    data = b"".join(jpegs[:5]) + b"\xff\xd8 broken \xff\xd9" + b"".join(jpegs[5:])
    numbers, times = shown(PipedStream(io.BytesIO(data), "pipe"))
    assert numbers == list(range(20))
    assert set(times) == {None}


def test_a_pipe_of_a_transport_stream_has_its_own_times(transport_stream):
    numbers, times = shown(PipedStream(io.BytesIO(transport_stream), "pipe"))
    assert numbers == list(range(50))
    assert np.diff(times) == pytest.approx(np.full(49, 1 / 25))


def test_a_growing_file_is_followed(tmp_path, transport_stream):
    path = tmp_path / "growing.ts"
    half = len(transport_stream) // 2
    path.write_bytes(transport_stream[:half])

    def write():
        with path.open("ab") as file:
            for start in range(half, len(transport_stream), 1000):
                time.sleep(0.02)
                file.write(transport_stream[start : start + 1000])
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    numbers, _ = shown(PipedStream.growing(path, end_after=2.0))
    writer.join()
    assert numbers == list(range(50))


def test_what_is_no_stream_is_refused():
    with pytest.raises(VideoError, match="not a stream that FFmpeg can read"):
        shown(PipedStream(io.BytesIO(b"nothing" * 100), "pipe"))


def test_a_folder_gets_images(tmp_path):
    def put(number):
        Image.fromarray(numbered(number)).save(tmp_path / f"image{number}.png")

    put(0)
    put(1)

    def write():
        for number in (9, 10, 11):
            time.sleep(0.15)
            put(number)

    writer = threading.Thread(target=write)
    writer.start()
    numbers, times = shown(FolderOfImages(tmp_path, 2.0, end_after=2.0))
    writer.join()
    assert numbers == [0, 1, 9, 10, 11]
    assert times == [0, 0.5, 1, 1.5, 2]


def test_an_image_that_is_still_written_is_waited_for_and_a_broken_one_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("aviot.streaming.sources.pictures.PATIENCE", 1.5)
    whole = io.BytesIO()
    Image.fromarray(numbered(7)).save(whole, "PNG")
    (tmp_path / "a.png").write_bytes(whole.getvalue()[:60])
    (tmp_path / "b.png").write_bytes(b"broken")
    Image.fromarray(numbered(9)).save(tmp_path / "c.png")
    threading.Timer(0.2, (tmp_path / "a.png").write_bytes, (whole.getvalue(),)).start()
    source = FolderOfImages(tmp_path, 2.0, end_after=3.0)
    assert shown(source)[0] == [7, 9]
    assert source.damaged == 1


def test_raw_frames():
    pictures = np.stack([numbered(i) for i in range(5)])
    source = RawFrames(io.BytesIO(pictures.tobytes() + b"rest"), 64, 48, 10.0)
    assert shown(source) == (list(range(5)), [0, 0.1, 0.2, pytest.approx(0.3), 0.4])
    assert source.damaged == 1


def test_the_network_is_reached_only_when_asked_for():
    for address in ("rtsp://camera.invalid/1", "http://127.0.0.1:9/stream"):
        with pytest.raises(NetworkRefusedError, match="no connection was allowed"):
            open_source(address, SourceOptions(), fps=2.0)
    with pytest.raises(VideoError, match="not a protocol"):
        open_source("ftp://somewhere/clip", SourceOptions(network=True), fps=2.0)
    with pytest.raises(VideoError, match="not a stream"):
        open_source("http://127.0.0.1:9/stream", SourceOptions(network=True), fps=2.0)


def test_a_stream_over_http_breaks_off_and_comes_back(transport_stream, monkeypatch):
    """The second connection starts again at the first frame, as cameras do after a fault."""
    monkeypatch.setattr("aviot.streaming.sources.containers.RETRY_SECONDS", 0.1)
    served = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served.append(self.path)
            if len(served) > 2:
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Type", "video/mp2t")
            self.end_headers()
            self.wfile.write(transport_stream)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/live"
        numbers, _ = shown(ConnectedStream(address, end_after=0.5))
        server.shutdown()
    assert numbers == list(range(50)) * 2


def test_a_server_cannot_have_local_files_opened(tmp_path):
    path = encode(tmp_path / "secret.mp4")
    with pytest.raises(VideoError, match="not a stream"):
        ConnectedStream(f"file://{path}", end_after=1.0)


class Scripted(FrameSource):
    """Frames at given times, some of them damaged."""

    live = False

    def __init__(self, times):
        self.times = times

    def frames(self, stop):
        for number, at in enumerate(self.times):
            if number % 4 == 3:
                self.damaged += 1
            else:
                yield LiveFrame(at, partial(numbered, number % 256))


class Recording:
    """Stands for a session: notes what it is offered, and when."""

    def __init__(self):
        self.offered, self.damaged, self.finished = [], 0, False

    def offer(self, make, at):
        self.offered.append((at, time.monotonic()))

    def note_damaged(self, count=1):
        self.damaged += count

    def wait(self):
        pass

    def finish(self):
        self.finished = True

    def check(self):
        pass


@pytest.mark.parametrize("speed", [1.0, 4.0, float("inf")])
def test_a_file_is_played_at_its_speed(speed):
    session = Recording()
    player = Player(session, Scripted([i / 10 for i in range(8)]), speed)
    player.start()
    assert player.ended.wait(10)
    assert player.error is None
    times, arrived = zip(*session.offered, strict=True)
    assert times == pytest.approx((0, 0.1, 0.2, 0.4, 0.5, 0.6))
    assert session.damaged == 2
    assert session.finished
    took = arrived[-1] - arrived[0]
    assert 0.6 / speed - 0.01 <= took < 0.6 / speed + 5


def test_a_player_stops_at_once():
    session = Recording()
    player = Player(session, Scripted([0, 1000, 2000]))
    player.start()
    time.sleep(0.1)
    begin = time.monotonic()
    player.stop()
    assert time.monotonic() - begin < 5
    assert player.ended.is_set()
    assert len(session.offered) == 1


def test_wrong_speeds_are_refused():
    for speed in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="speed must be"):
            Player(Recording(), Scripted([]), speed)
