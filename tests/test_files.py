"""Atomic writes."""

import pytest

from aviot.utils.files import atomic_write, write_durably


def test_a_file_is_replaced_atomically(tmp_path):
    path = tmp_path / "kept.json"
    write_durably(path, b"old")
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "kept.json"
    path.write_bytes(b"old")

    def write_half():
        with atomic_write(path) as temporary:
            temporary.write_bytes(b"ne")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
    with pytest.raises(TypeError):
        write_durably(path, "no bytes")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
