"""The streaming scanner on valid and invalid files."""

import io
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aviot.data import scan
from aviot.data.checks import DataError, RepeatedKey
from aviot.data.scan import Found, Scanner, decode_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
WHOLE = b'[{"a": ["x\\u00e9", 1.5]}, {"b": null}]'
AT = st.integers(0, len(WHOLE))


def found_in(data: bytes) -> list[Found]:
    return list(Scanner(io.BytesIO(data), "a.json"))


def check(data: bytes, values: list) -> None:
    found = found_in(data)
    assert [one.value for one in found] == values
    for one in found:
        assert decode_json(data[one.offset : one.offset + one.length]) == one.value


@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 40))
def test_elements_of_an_array_are_located(values, indent, ascii_only, chunk):
    data = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "CHUNK", chunk)
        check(data, values)


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=6), st.sampled_from(["\n", "\r\n", "\n \n"]))
def test_lines_are_located(values, ending):
    check(ending.join(json.dumps(value, ensure_ascii=False) for value in values).encode(), values)


@pytest.mark.parametrize("text", ['[{"a": 1}]', '{"a": 1}\n{"b": 2}\n'])
def test_a_byte_order_mark_is_skipped(text):
    plain, marked = found_in(text.encode()), found_in(b"\xef\xbb\xbf" + text.encode())
    assert [one.value for one in marked] == [one.value for one in plain]
    assert [one.offset - 3 for one in marked] == [one.offset for one in plain]


def test_lines_and_elements_are_numbered():
    found = found_in(b'[\n{"a": "x\\ny"},\r\n\n{"b": 2}, {"c": 3}]')
    assert [(one.number, one.line) for one in found] == [(1, 2), (2, 4), (3, 4)]
    assert [one.number for one in found_in(b'{"a": 1}\n\n{"b": 2}')] == [1, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'[{"a": 1},]', "element 2 .*after the comma.*remove the comma"),
        (b'[{"a": 1}\n{"b": 2}]', r"element 1 \(line 2\): a comma or \] was expected"),
        (b'[{"a": 1},\n{"b": }]', r"element 2 \(line 2\): it is not JSON \(Expecting value at character 7"),
        (b"[{'a': 1}]", "element 1 .*not JSON"),
        (b'[{"a": "x\x01"}]', r"\(Invalid control character at character 9\)"),
        (b'[{"a": 1}', "ends inside the array"),
        (b'[{"a": 1},', "ends inside the array"),
        (b'[{"a": 1}, {"b": "cut', "element 2 .*ends inside a text that begins at its character 7"),
        (b"[", "ends inside the array"),
        (b'[{"a": 1}] tail', "nothing may follow"),
        (b'[{"a": "\xff"}]', "not UTF-8: byte 8"),
        (b'[{"a": "\xc3', "not UTF-8: byte 8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"n": ' + b"9" * 5000 + b"}]", "element 1 .*not JSON"),
        (b'"text"', r"neither a JSON array nor JSONL.*begins with b'\"'"),
        (b"\xff\xfe[\x00", "neither a JSON array nor JSONL"),
        (b"\x1f\x8b\x08", "neither a JSON array nor JSONL"),
    ],
)
def test_invalid_files_are_reported_with_the_location(text, message):
    with pytest.raises(DataError, match=message) as error:
        found_in(text)
    assert "a.json" in str(error.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": 1} {"b": 2}', "not JSON (Extra data"),
        (b'{"a": "\xff"}', "not UTF-8 (byte 7)"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "limit"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a"\x00: 1}', "not JSON"),
    ],
)
def test_an_invalid_line_does_not_affect_others(line, problem):
    before, broken, after = found_in(b'{"a": 0}\n' + line + b'\r\n{"b": 1}\n')
    assert (before.problem, after.problem, after.value) == (None, None, {"b": 1})
    assert broken.number == 2
    assert problem in broken.problem


@given(st.binary(max_size=60) | st.builds(lambda at, new: WHOLE[:at] + new + WHOLE[at + 1 :], AT, st.binary()))
def test_any_bytes_are_scanned_or_refused(data):
    with suppress(DataError):
        for one in found_in(data):
            assert one.problem is not None or decode_json(data[one.offset : one.offset + one.length]) == one.value


def test_records_of_unbounded_length_are_refused(monkeypatch):
    monkeypatch.setattr(scan, "MAX_RECORD", 1000)
    monkeypatch.setattr(scan, "CHUNK", 100)
    long = b'{"a": "' + b"x" * 5000 + b'"}'
    short, problem, after = found_in(b'{"a": 1}\n' + long + b'\n{"b": 2}')
    assert "longer than 1,000 bytes" in problem.problem
    assert (after.number, after.value, short.value) == (3, {"b": 2}, {"a": 1})
    with pytest.raises(DataError, match=r"element 2 .*longer than 1,000 bytes"):
        found_in(b"[1, " + long + b"]")


def test_a_repeated_key_is_detected_at_any_depth():
    (one,) = found_in(b'[{"a": {"b": 1, "b": 2}}]')
    assert isinstance(one.value["a"], RepeatedKey)
    assert one.value["a"].key == "b"


def test_the_digest_is_that_of_the_file():
    import hashlib

    for data in (b'[{"a": 1}, {"b": 2}]\n', b'{"a": 1}\n\n{"b": 2}\r\n', b"\xef\xbb\xbf[1]", b""):
        scanner = Scanner(io.BytesIO(data), "a.json")
        list(scanner)
        assert scanner.digest == hashlib.sha256(data).hexdigest()
