"""One process at a time writes into a run's folder, by a lock that ends with the process."""

import os
import signal
import time

import pytest
from common import GOLDEN

from aviot.files import LOCK, filling, only_writer
from aviot.models import AviotProcessor

ADVICE = "wait for it"


def test_a_folder_has_one_writer(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with only_writer(tmp_path, ADVICE):
        for folder in (tmp_path, tmp_path / "link"):
            with pytest.raises(ValueError, match=rf"writing into .* \(process {os.getpid()} on .*\); wait for it"):
                only_writer(folder, ADVICE).__enter__()
        (tmp_path / LOCK).unlink()
        with pytest.raises(ValueError, match="another process is writing"):
            only_writer(tmp_path, ADVICE).__enter__()
    with only_writer(tmp_path, ADVICE):
        pass


def test_a_killed_holder_frees_it_even_if_a_child_of_it_lives(tmp_path):
    ready, tell = os.pipe()
    holder = os.fork()
    if not holder:
        held = only_writer(tmp_path, ADVICE)
        held.__enter__()
        child = os.fork()
        if child:
            os.write(tell, str(child).encode().ljust(20))
        time.sleep(60)
        os._exit(0)
    child = int(os.read(ready, 20))
    try:
        with pytest.raises(ValueError, match=f"process {holder} on"):
            only_writer(tmp_path, ADVICE).__enter__()
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.kill(child, 0)
        with only_writer(tmp_path, ADVICE):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_folder_that_stayed_empty_goes_away_again(tmp_path):
    for content, stays in (((), False), (("run.json",), True)):
        with only_writer(tmp_path / "a" / "b", ADVICE):
            for name in content:
                (tmp_path / "a" / "b" / name).touch()
        assert (tmp_path / "a").exists() == stays


def test_a_link_in_the_place_of_the_lock_is_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=f"{LOCK} is not a regular file"):
        only_writer(tmp_path / "run", ADVICE).__enter__()
    assert (tmp_path / "mine").read_text() == "kept"


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(ValueError, match=f"{LOCK} is not a regular file"):
        only_writer(tmp_path, ADVICE).__enter__()


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_is_filled_with_whole_files(tmp_path, exists):
    folder = tmp_path / "folder"
    if exists:
        (folder / "inner").mkdir(parents=True)
        (folder / "kept").write_text("old")
        (folder / "inner" / "a").write_text("old")

    def write(text, error=None):
        with filling(folder) as place:
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


def test_a_processor_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """Its tokenizer comes first: a kill or a full disk after that would leave it beside settings of another."""
    processor = AviotProcessor.from_pretrained(GOLDEN.parent / "checkpoint")
    written = processor.save_pretrained(tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert {os.path.basename(path) for path in written} == set(before)
    assert {os.path.dirname(path) for path in written} == {str(tmp_path / "kept")}
    (tmp_path / "kept" / "tokenizer.json").write_text("mine")
    monkeypatch.setattr("aviot.models.processing.json.dumps", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        processor.save_pretrained(tmp_path / "kept")
    assert (tmp_path / "kept" / "tokenizer.json").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
