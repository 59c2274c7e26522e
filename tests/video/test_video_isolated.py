"""Untrusted files in separate processes: the same videos as in this one, and failures that stay with their file."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest
from bombs import BOMBS, slow
from clips import encode, numbered
from PIL import Image

from aviot.video import (
    PatchScaling,
    ReadLimits,
    Scaling,
    Video,
    VideoError,
    isolated,
    read_isolated,
    read_video,
    stop_reading,
)
from aviot.video.isolated import Reader
from aviot.video.worker import InvalidReply, describe_video, parse_header, rebuild_video, unpack_prefix


@pytest.fixture(autouse=True)
def _fresh():
    """Start each test without readers, and leave none."""
    stop_reading()
    yield
    stop_reading()


@pytest.fixture
def clip(tmp_path):
    return encode(tmp_path / "clip.mp4")


@pytest.fixture
def endless(tmp_path):
    """A file whose frames take minutes to decode."""
    path = tmp_path / "slow.gif"
    path.write_bytes(slow())
    return path


def same(ours: Video, theirs: Video) -> bool:
    others = [field.name for field in fields(Video) if field.name != "frames"]
    pixels = ours.frames.dtype == theirs.frames.dtype and np.array_equal(ours.frames, theirs.frames)
    return pixels and all(getattr(ours, name) == getattr(theirs, name) for name in others)


def readers():
    """Return all readers, idle and busy."""
    return [*isolated._readers._idle, *isolated._readers._busy]


def pid_of(reader):
    return reader._process.pid


def wait_for(condition, seconds=30):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit
        time.sleep(0.01)
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def error_of(path, **options):
    with pytest.raises(VideoError) as caught:
        read_isolated(path, **options)
    return str(caught.value)


@pytest.mark.parametrize("transform", [None, Scaling(32), Scaling(32, thumbnail=20)])
@pytest.mark.parametrize("options", [{}, {"frames": 7}, {"fps": 5, "max_frames": 9}])
def test_the_result_is_the_same(clip, transform, options):
    assert same(read_isolated(clip, transform=transform, **options), read_video(clip, transform=transform, **options))


def test_folders_comments_and_names_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bilder ü"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(numbered(number)).save(folder / f"{number}.png")
    odd = Path(os.fsdecode(b"a\xff b.mp4"))
    odd.write_bytes(encode(tmp_path / "clip.mp4", pictures=5).read_bytes())
    for source, options in ((folder, {"source_fps": 3}), (Path("bilder ü"), {}), (odd, {}), (str(odd.absolute()), {})):
        assert same(read_isolated(source, **options), read_video(source, **options))
    frames = np.zeros((4, 8, 8, 3), np.uint8)
    assert same(read_isolated(frames, source_fps=2), read_video(frames, source_fps=2))


def test_warnings_are_logged_once_and_a_damaged_file_ends_its_reader(tmp_path, caplog):
    path = encode(tmp_path / "cut.mkv")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    logged = []
    for read in (read_video, read_isolated):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            video = read(path, frames=100)
        logged.append([(record.name, record.getMessage()) for record in caplog.records])
    assert video.damage is not None
    assert logged[0] == logged[1]
    assert len(logged[0]) == 2
    assert readers() == []


def test_error_messages_are_the_same(tmp_path, clip):
    (tmp_path / "words.mp4").write_bytes(b"words " * 99)
    for source, options in (
        (tmp_path / "words.mp4", {}),
        (tmp_path / "none.mp4", {}),
        (tmp_path, {}),
        (clip, {"source_fps": 3}),
        (clip, {"fps": 0}),
        ("a\0b.mp4", {}),
        (b"clip.mp4", {}),
        (None, {}),
    ):
        with pytest.raises(VideoError) as here:
            read_video(source, **options)
        assert error_of(source, **options) == str(here.value)
    with pytest.raises(TypeError, match="must be a Scaling"):
        read_isolated(clip, transform=lambda frame: frame)


def test_scaling_by_torch_where_dill_is_installed(clip, tmp_path, monkeypatch):
    """torch imports dill, which Hugging Face's datasets brings, and dill asks for a temporary folder."""
    (tmp_path / "dill.py").write_text("import tempfile\n\ntempfile.gettempdir()\nextend = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    scaling = PatchScaling(size=(28, 56))
    assert same(read_isolated(clip, transform=scaling), read_video(clip, transform=scaling))
    maps = Path(f"/proc/{pid_of(readers()[0])}/maps").read_text()
    assert "torch" in maps  # so the reader imported it


def test_a_reader_is_used_again_and_never_imports_torch(clip):
    read_isolated(clip)
    (first,) = readers()
    read_isolated(clip)
    assert readers() == [first]
    assert "libav" in (maps := Path(f"/proc/{pid_of(first)}/maps").read_text())
    assert "torch" not in maps


def test_a_slow_file_is_abandoned_at_its_deadline(endless, clip):
    read_isolated(clip)
    (reader,) = readers()
    begin = time.monotonic()
    message = error_of(endless, transform=Scaling(8), limits=ReadLimits(seconds=0.5))
    assert 0.5 < time.monotonic() - begin < 5
    assert f"{endless} was not read within 0.6 s" in message
    assert "longer read timeout (ReadLimits.seconds)" in message
    assert not is_running(pid_of(reader))
    assert readers() == []
    assert len(read_isolated(clip)) == 5


def test_a_file_that_nobody_waits_for_is_abandoned(endless, clip):
    start = time.monotonic()
    with pytest.raises(VideoError, match="nobody waits for it any more"):
        read_isolated(endless, transform=Scaling(8), abandoned=lambda: time.monotonic() - start > 0.3)
    assert time.monotonic() - start < 20, "long before its deadline"
    assert len(read_isolated(clip)) == 5


def test_the_share_of_the_frames_that_are_read_is_told(endless, clip):
    shares = []
    with pytest.raises(VideoError, match="nobody waits"):
        read_isolated(endless, transform=Scaling(8), progress=shares.append, abandoned=lambda: len(shares) > 2)
    assert 0 < shares[0] < shares[1] < shares[2] <= 1
    shares.clear()
    assert same(read_isolated(clip, progress=shares.append), read_video(clip))
    assert shares[0] == 0.2  # of five frames; further messages come only after some time
    assert shares == sorted(shares)


def test_a_reader_that_only_tells_of_progress_is_given_up(endless, monkeypatch):
    """A reader that a file has taken over may send progress without end."""
    monkeypatch.setattr(Reader, "_receive", lambda self, selector, reading, ends, count: np.zeros(count, np.uint8))
    assert "was not read within" in error_of(endless, transform=Scaling(8), limits=ReadLimits(seconds=0.3))


def test_a_file_that_takes_too_much_memory_is_abandoned(endless):
    message = error_of(endless, transform=Scaling(8), limits=ReadLimits(memory=150_000_000))
    assert f"{endless} takes more than 150 MB of memory" in message
    assert readers() == []


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_crash_is_a_clear_error(endless, clip, number):
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(error_of, endless, transform=Scaling(8))
        (reader,) = wait_for(readers)
        wait_for(lambda: reader._memory() > 1e8)
        os.kill(pid_of(reader), number)
        message = future.result(30)
    expected = "the system killed the decoder" if number == signal.SIGKILL else f"signal {number.value}, {number.name}"
    assert expected in message
    assert len(read_isolated(clip)) == 5


def test_a_reader_that_died_while_idle_is_replaced(clip):
    whole = read_isolated(clip)
    (reader,) = readers()
    os.kill(pid_of(reader), signal.SIGKILL)
    assert same(read_isolated(clip), whole)
    assert reader not in readers()


def test_several_threads_read_at_once(tmp_path):
    paths = [encode(tmp_path / f"{number}.mp4", pictures=10 + number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(read_isolated, paths))
    assert all(same(video, read_video(path)) for video, path in zip(read, paths, strict=True))
    assert 1 <= len(readers()) <= isolated.MAX_IDLE


def test_reading_is_stopped_from_another_thread(endless):
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(error_of, endless, transform=Scaling(8))
        wait_for(readers)
        stop_reading()
        assert "reading was stopped" in future.result(10)
    assert readers() == []


PARENT = """
import sys, threading, time
from aviot.video import Scaling, isolated, read_isolated
read = dict(target=read_isolated, args=(sys.argv[1],), kwargs={"transform": Scaling(8)}, daemon=True)
threading.Thread(**read).start()
while not isolated._readers._busy or next(iter(isolated._readers._busy))._memory() < 1e8:
    time.sleep(0.01)
print(next(iter(isolated._readers._busy))._process.pid, flush=True)
time.sleep(60)
"""


def test_a_reader_ends_with_the_process_that_asked(endless):
    with subprocess.Popen([sys.executable, "-c", PARENT, str(endless)], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    wait_for(lambda: not is_running(pid), seconds=10)


def test_a_forked_process_has_readers_of_its_own(clip):
    read_isolated(clip)
    (reader,) = readers()
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(len(read_isolated(clip)) if readers() == [] else 99)
        finally:
            os._exit(98)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert readers() == [reader]
    assert len(read_isolated(clip)) == 5


def test_bombs_are_refused_by_readers_too(tmp_path):
    path = tmp_path / "samples.mp4"
    path.write_bytes(BOMBS["samples.mp4"]())
    assert "claims 30,000,000 samples" in error_of(path)


def open_files():
    """The files, pipes and sockets that this process holds open, by descriptor and by what they are."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_nothing_is_left_behind(clip, endless):
    """Nothing new: what earlier tests of the same process left may close meanwhile."""
    stop_reading()
    before = set(clip.parent.iterdir())
    files, threads = open_files(), set(threading.enumerate())
    read_isolated(clip)
    error_of(endless, transform=Scaling(8), limits=ReadLimits(seconds=0.2))
    stop_reading()
    assert set(clip.parent.iterdir()) == before
    assert open_files() <= files
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [5, 48, 64]},
        {"shape": [-5, -48, 64, 3]},
        {"shape": "5"},
        {"indices": [0]},
        {"indices": [0.0] * 5},
        {"times": ["0"] * 5},
        {"total": True},
        {"name": 3},
        {"damage": {"claimed_seconds": 1}},
        {"comment": None},
    ],
)
def test_a_reply_is_validated(clip, change):
    video = read_video(clip)
    described, pixels = describe_video(video), video.frames.reshape(-1)
    assert same(rebuild_video(described, pixels), video)
    with pytest.raises(InvalidReply):
        rebuild_video(described | change, pixels)


def test_lengths_and_headers_are_validated():
    for prefix in (b"\xff" * 16, (0).to_bytes(8, "big") + (1001).to_bytes(8, "big")):
        with pytest.raises(InvalidReply):
            unpack_prefix(prefix, 1000)
    for header in (b"", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(InvalidReply):
            parse_header(header)


def test_limits_are_validated(clip):
    for seconds in (-1, 0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds of the read limits must be a number above 0"):
            ReadLimits(seconds=seconds)
    assert len(read_isolated(clip, limits=ReadLimits(seconds=1e12))) == 5
    size = clip.stat().st_size
    assert ReadLimits(seconds=10, seconds_per_megabyte=2).deadline(clip) == pytest.approx(10 + 2 * size / 1e6)
    assert asdict(Scaling(3)) == {"image_size": 3, "thumbnail": None}
