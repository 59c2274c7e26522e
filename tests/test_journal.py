"""Journals: durable and complete rows, written by one process at a time."""

import os
import tracemalloc

import pytest

from aviot.utils.journal import MAX_LINE, Journal, JournalError, read_rows


def test_rows_are_read_back(tmp_path):
    path = tmp_path / "parts" / "rows.jsonl"
    for value in ("a\u2028b", "狗\r\n"):
        with Journal(path) as journal:
            journal.add({"text": value})
    assert [row["text"] for row in read_rows(path)] == ["a\u2028b", "狗\r\n"]
    assert read_rows(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(
    "partial", [b'{"text": "thr', b"{", b'{"text": 3}', b"\x00\x00\x00\n", b"nonsense\n", '{"t": "狗'.encode()[:-1]]
)
def test_a_partial_last_line_is_truncated(tmp_path, partial):
    path = tmp_path / "rows.jsonl"
    with Journal(path) as journal:
        journal.add({"text": 1})
        journal.add({"text": 2})
    path.write_bytes(path.read_bytes() + partial)
    assert [row["text"] for row in read_rows(path)] == [1, 2]
    with Journal(path) as journal:
        journal.add({"text": 3})
    assert path.read_bytes() == b'{"text": 1}\n{"text": 2}\n{"text": 3}\n'


@pytest.mark.parametrize("whole", [b"", b'{"text": 1}'])
def test_a_partial_first_line(tmp_path, whole):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole)
    with Journal(path) as journal:
        journal.add({"text": 2})
    assert read_rows(path) == [{"text": 2}]


@pytest.mark.parametrize("text", [b"my notes", b"one\ntwo\nthree\n", b'{"text": 1}\ntwo\nthree\n'])
def test_another_file_is_left_unchanged(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text)
    for _ in range(2):  # and no lock stays behind
        with pytest.raises(JournalError, match=r"is not a (journal|row) of a run"):
            Journal(path)
    assert path.read_bytes() == text


@pytest.mark.parametrize("partial", [b"", b'{"for', b'{"format": 2, "seed": 0', b"\x00\x00"])
def test_a_known_first_row_distinguishes_a_partial_journal_from_another_file(tmp_path, partial):
    path, first = tmp_path / "rows.jsonl", {"format": 2, "seed": 0}
    for mine in (b'{"mine": [1, 2, 3]}', b'{"mine": [1', b"{\x80\xff", b'{\n "mine": 1}', b'{"format": 2, "seed": 1'):
        path.write_bytes(mine)
        with pytest.raises(JournalError, match=r"is not a (journal|row) of a run"):
            Journal(path, first)
        assert path.read_bytes() == mine
    path.write_bytes(partial)
    with Journal(path, first) as journal:
        journal.add(first)
    assert read_rows(path) == [first]


def test_nothing_is_truncated_before_the_first_append(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"mine": 1}\n{"also": 2}')
    with Journal(path):
        pass
    assert path.read_bytes() == b'{"mine": 1}\n{"also": 2}'


def test_damage_elsewhere_is_an_error(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": 1}\nnonsense\n{"text": 3}\n')
    with pytest.raises(JournalError, match="line 2 is not a row"):
        read_rows(path)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        '{"a": 1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b'{"a": 1}\r{"b": 2}',
        b'{"a": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"a": "' + b"x" * 2**26 + b'"}',
        b"\0",
        b"",
        b"5",
    ],
    ids=lambda line: ascii(line[:20]),
)
def test_an_invalid_line_is_refused(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": 1}\n' + line + b'\n{"text": 3}\n')
    for use in (read_rows, Journal):
        with pytest.raises(JournalError, match="line 2 is not a row"):
            use(path)


def test_an_invalid_but_complete_last_row_is_not_truncated(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": 1}\n{"text": NaN}\n')
    with pytest.raises(JournalError, match="line 2 is not a row"):
        Journal(path)
    assert path.read_bytes().endswith(b"NaN}\n")


def test_control_characters_and_lone_surrogates_are_escaped(tmp_path):
    path, text = tmp_path / "rows.jsonl", "\x1b\x9b\u202e\ud800\x7f狗"
    with Journal(path) as journal:
        journal.add({"text": text})
    assert read_rows(path) == [{"text": text}]
    assert not set("\x1b\x9b\u202e\x7f") & set(path.read_text(encoding="utf-8"))


def test_two_writers_are_refused(tmp_path):
    with Journal(tmp_path / "rows.jsonl"), pytest.raises(JournalError, match="another process is writing"):
        Journal(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("size", [2**32, 2**30 - 1])
def test_a_file_too_large_for_a_journal_is_not_read_whole(tmp_path, size):
    """The larger one is refused by its size, the smaller one where its rows end."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": 1}\n')
    os.truncate(path, size)  # zeros, which take no room on the disk
    tracemalloc.start()
    for use in (read_rows, Journal):
        with pytest.raises(JournalError, match=r"more than the 1,073,741,824|line 2 is not a row"):
            use(path)
    assert tracemalloc.get_traced_memory()[1] < 4 * MAX_LINE
    tracemalloc.stop()
    assert path.stat().st_size == size


def test_a_partial_line_after_one_that_is_not_json_is_truncated_with_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": 1}\n\0\0\0\n\0\0')
    with Journal(path) as journal:
        journal.add({"text": 2})
    assert path.read_bytes() == b'{"text": 1}\n{"text": 2}\n'
