"""The exclusive lock of a run's folder, and atomic writes of folders."""

import os
import signal
import time

import pytest
from common import GOLDEN

from aviot.models import AviotProcessor
from aviot.utils.files import LOCK, atomic_folder, folder_lock

ADVICE = "wait for it"


def test_a_folder_has_one_writer(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with folder_lock(tmp_path, ADVICE):
        for folder in (tmp_path, tmp_path / "link"):
            with pytest.raises(ValueError, match=rf"writing into .* \(process {os.getpid()} on .*\); wait for it"):
                folder_lock(folder, ADVICE).__enter__()
        (tmp_path / LOCK).unlink()
        with pytest.raises(ValueError, match="another process is writing"):
            folder_lock(tmp_path, ADVICE).__enter__()
    with folder_lock(tmp_path, ADVICE):
        pass


def test_a_killed_holder_releases_it_even_if_its_child_lives(tmp_path):
    ready, tell = os.pipe()
    holder = os.fork()
    if not holder:
        held = folder_lock(tmp_path, ADVICE)
        held.__enter__()
        child = os.fork()
        if child:
            os.write(tell, str(child).encode().ljust(20))
        time.sleep(60)
        os._exit(0)
    child = int(os.read(ready, 20))
    try:
        with pytest.raises(ValueError, match=f"process {holder} on"):
            folder_lock(tmp_path, ADVICE).__enter__()
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.kill(child, 0)
        with folder_lock(tmp_path, ADVICE):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_folder_that_stayed_empty_is_removed(tmp_path):
    for content, stays in (((), False), (("run.json",), True)):
        with folder_lock(tmp_path / "a" / "b", ADVICE):
            for name in content:
                (tmp_path / "a" / "b" / name).touch()
        assert (tmp_path / "a").exists() == stays


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=f"{LOCK} is not a regular file"):
        folder_lock(tmp_path / "run", ADVICE).__enter__()
    assert (tmp_path / "mine").read_text() == "kept"


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(ValueError, match=f"{LOCK} is not a regular file"):
        folder_lock(tmp_path, ADVICE).__enter__()


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_is_written_atomically(tmp_path, exists):
    folder = tmp_path / "folder"
    if exists:
        (folder / "inner").mkdir(parents=True)
        (folder / "kept").write_text("old")
        (folder / "inner" / "a").write_text("old")

    def write(text, error=None):
        with atomic_folder(folder) as place:
            (place / "inner").mkdir()
            (place / "inner" / "a").write_text(text)
            if error:
                raise error

    with pytest.raises(OSError, match="full"):
        write("half", OSError("full"))
    assert (folder / "inner" / "a").read_text() == "old" if exists else not folder.exists()
    write("new")
    assert (folder / "inner" / "a").read_text() == "new"
    assert (folder / "kept").exists() == exists
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_processor_is_saved_atomically(tmp_path, monkeypatch):
    """The tokenizer is saved first: a failure after that would leave it beside the settings of another."""
    processor = AviotProcessor.from_pretrained(GOLDEN.parent / "checkpoint")
    written = processor.save_pretrained(tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert {os.path.basename(path) for path in written} == set(before)
    assert {os.path.dirname(path) for path in written} == {str(tmp_path / "kept")}
    (tmp_path / "kept" / "tokenizer.json").write_text("mine")
    monkeypatch.setattr("aviot.backbones.llava_video.processing.json.dumps", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        processor.save_pretrained(tmp_path / "kept")
    assert (tmp_path / "kept" / "tokenizer.json").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
