"""Indexes of record files: correct, stored, reused, rebuilt when necessary, and small."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from forked import run_forked
from training_sets import record, turns, write_json, write_lines

from aviot.data import Corpus, DataConfig, DataError
from aviot.data import index as index_module
from aviot.data.index import open_index


@pytest.mark.parametrize("write", [write_json, write_lines])
def test_every_record_is_read_from_its_offset(tmp_path, write):
    records = [record(i, conversations=turns(f"<image>\nWhät {i}?", "ü" * i + ".")) for i in range(50)]
    index = open_index(write(tmp_path / "a.json", records), tmp_path / "index")
    assert len(index) == 50
    for i in (0, 7, 49):
        assert index.read(i).id == f"r{i}"
        assert index.read(i).turns == ((f"Whät {i}?", "ü" * i + "."),)
        assert index.read(i).characters == index.characters[i]
    assert np.all(index.seconds == 15)


def test_an_index_is_built_once(tmp_path, monkeypatch):
    path = write_json(tmp_path / "a.json", [record(0)])
    first = open_index(path, tmp_path / "index")
    monkeypatch.setattr(index_module, "Scanner", None)
    assert open_index(path, tmp_path / "index").digest == first.digest


def test_a_changed_file_is_indexed_again(tmp_path):
    path = write_json(tmp_path / "a.json", [record(0)])
    first = open_index(path, tmp_path / "index")
    write_json(path, [record(0), record(1)])
    again = open_index(path, tmp_path / "index")
    assert (len(first), len(again)) == (1, 2)
    assert first.digest != again.digest


def test_a_file_that_changes_during_the_run_is_detected(tmp_path):
    path = write_json(tmp_path / "a.json", [record(0), record(1)])
    index = open_index(path, tmp_path / "index")
    path.write_text("x" * path.stat().st_size)
    with pytest.raises(DataError, match=r"a\.json, element 2 was a valid record when it was indexed"):
        index.read(1)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-5], lambda data: b"\xff" * len(data)])
def test_a_damaged_index_is_built_again(tmp_path, damage):
    path = write_json(tmp_path / "a.json", [record(i) for i in range(20)])
    open_index(path, tmp_path / "index")
    (stored,) = (tmp_path / "index").iterdir()
    stored.write_bytes(damage(stored.read_bytes()))
    assert len(open_index(path, tmp_path / "index")) == 20


def test_nothing_is_left_behind_by_a_build_that_fails(tmp_path):
    (tmp_path / "a.json").write_text('[{"a": 1}, oops]')
    with pytest.raises(DataError, match="element 2"):
        open_index(tmp_path / "a.json", tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_an_index_needs_a_folder_that_can_be_written_to(tmp_path):
    path = write_json(tmp_path / "a.json", [record(0)])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written to .*give another folder as index_folder"):
        open_index(path, tmp_path / "file" / "index")


def test_indexes_are_in_the_users_cache_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = Corpus.open(DataConfig(write_json(tmp_path / "a.json", [record(0)])))
    assert len(list((tmp_path / "cache" / "aviot" / "index").iterdir())) == 1
    with pytest.raises(IndexError, match="the set has 1 records, got number 1"):
        corpus[1]


def open_and_count(path: str, folder: str) -> None:
    print(len(open_index(Path(path), Path(folder))))


def test_processes_may_build_at_once(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [record(i) for i in range(300)])
    ended = run_forked(open_and_count, str(path), str(tmp_path / "index"), environments=({},) * 6)
    assert [one.stdout for one in ended] == ["300\n"] * 6
    assert len(list((tmp_path / "index").iterdir())) == 1


def test_bad_records_are_listed_with_their_locations(tmp_path):
    good, no_talk = record(0), record(1, conversations=[])
    two = record(2, conversations=turns("<image><image>", "a"))
    path = write_lines(tmp_path / "a.jsonl", [good, no_talk, two, record(3, video=None)])
    path.write_text(path.read_text() + "\n{nonsense\n")
    config = DataConfig(str(path), index_folder=str(tmp_path / "index"))
    with pytest.raises(DataError) as error:
        Corpus.open(config)
    message = str(error.value)
    assert "4 of 5 records cannot be used" in message
    assert f"{path}, line 2: the record has no conversation" in message
    assert f"{path}, line 3: the conversation has 2 placeholders" in message
    assert f"{path}, line 4: the record names no video" in message
    assert f"{path}, line 6: it is not JSON" in message
    assert "bad_records: skip" in message


def test_bad_records_can_be_left_out(tmp_path, caplog):
    path = write_json(tmp_path / "a.json", [record(0), *[record(i, video="/abs") for i in range(30)], record(99)])
    corpus = Corpus.open(DataConfig(str(path), bad_records="skip", index_folder=str(tmp_path / "index")))
    assert [corpus[i].record.id for i in range(2)] == ["r0", "r99"]
    assert corpus[1].where == f"{path}, element 32"
    assert "30 of 32 records" in caplog.text
    assert "and 10 more" in caplog.text


def test_a_repeated_key_is_refused(tmp_path):
    text = json.dumps(record(0))
    (tmp_path / "a.jsonl").write_text(text[:-1] + ', "video": "b.mp4"}')
    with pytest.raises(DataError, match="a record has the key 'video' twice"):
        Corpus.open(DataConfig(str(tmp_path / "a.jsonl"), index_folder=str(tmp_path / "index")))


@pytest.mark.parametrize("content", ["[]", " [\n] ", "", "\n\n", "\ufeff"])
def test_an_empty_set_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"the training set is empty: there is no record in .*a\.json"):
        Corpus.open(DataConfig(str(tmp_path / "a.json"), index_folder=str(tmp_path / "index")))


@pytest.mark.parametrize("name", ["none.json", "folder.json", "loop.json", "nul\0.json"])
def test_paths_that_are_not_files_are_refused(tmp_path, name):
    (tmp_path / "folder.json").mkdir()
    os.symlink(tmp_path / "loop.json", tmp_path / "loop.json")
    with pytest.raises(DataError, match=r"no records file|not a regular file"):
        Corpus.open(DataConfig(str(tmp_path / name), index_folder=str(tmp_path / "index")))


def memory(name: str) -> int:
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1))


def measure(small: str, large: str, folder: str) -> None:
    open_index(Path(small), Path(folder))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = memory("VmRSS")
    index = open_index(Path(large), Path(folder))
    print(memory("VmHWM") - before, len(index))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is measured as Linux counts it")
def test_memory_does_not_grow_with_the_records(tmp_path):
    """50,000 records are 11 MB of JSON and ten times that as Python objects. Building their index takes 28 bytes per
    record, twice while it is written, and a window of the file; opening it again takes almost nothing."""
    large, small = tmp_path / "large.json", write_json(tmp_path / "small.json", [record(0)])
    with large.open("w") as file:
        file.write("[")
        one = json.dumps(record(0))
        file.writelines(("," if i else "") + one.replace('"r0"', f'"r{i}"') for i in range(50_000))
        file.write("]")
    growth = []
    for _ in ("built", "opened"):
        (done,) = run_forked(measure, str(small), str(large), str(tmp_path / "index"))
        taken, count = map(int, done.stdout.split())
        assert count == 50_000
        growth.append(taken)
    assert growth[0] < 15e6
    assert growth[1] < 4e6
