"""Append-only JSONL files whose rows are durable one by one, even if the process is killed."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from aviot.utils.files import check_regular, sync
from aviot.utils.printing import json_text

Row = dict[str, Any]

MAX_LINE = 2**26
"""Size in bytes of the longest accepted row; the longest ever written has a few hundred thousand."""


class JournalError(ValueError):
    """Raised for a damaged journal, or one that another process is writing."""


class Journal:
    """A JSONL file that one process at a time appends rows to.

    A partial last line is truncated before the first append.

    A file without a complete row is accepted only as a partial first row: a prefix of `first`, if that is given. Any
    other content is refused and left unchanged.
    """

    def __init__(self, path: Path, first: Mapping[str, Any] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_regular(path)
        self._file = path.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalError(f"another process is writing {path}; wait for it, or name another folder") from None
        try:
            self._complete_size: int | None = _size_of_rows(path, first)
        except JournalError:
            self._file.close()
            raise
        sync(path.parent)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row and flush it to disk."""
        if self._complete_size is not None:
            self._file.truncate(self._complete_size)
            self._complete_size = None
        self._file.write(as_line(row))
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def as_line(row: Mapping[str, Any]) -> bytes:
    """Return the line of a row: keys in order, non-ASCII letters unescaped, no NaN."""
    return json_text(row).encode() + b"\n"


def read_rows(path: Path) -> list[Row]:
    """Return all complete rows; a partial last line is ignored, other damage raises JournalError."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(_complete_lines(path.read_bytes()).split(b"\n")[:-1], 1):
        row = _parse(line)
        if row is None or not _is_writable(row):
            raise JournalError(
                f"{path}, line {number} is not a row of a run; the file was changed or has another origin: name "
                "another folder"
            )
        rows.append(row)
    return rows


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for the exclusive lock on a file, and hold it until the block or the process ends."""
    check_regular(path)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _size_of_rows(path: Path, first: Mapping[str, Any] | None) -> int:
    """Return the size in bytes of a journal's complete rows."""
    read_rows(path)
    data = path.read_bytes()
    complete = _complete_lines(data)
    partial = data.strip(b"\0\n")
    expected = partial.startswith(b"{") if first is None else as_line(first).startswith(partial)
    if not complete and partial and not expected:
        raise JournalError(f"{path} is not a journal of a run; it is left unchanged, name another folder")
    return len(complete)


def _complete_lines(data: bytes) -> bytes:
    """Return a file's bytes without a partial last line: one without a newline, or that is not JSON."""
    end = data.rfind(b"\n") + 1
    last = data.rfind(b"\n", 0, max(0, end - 1)) + 1
    return data[: last if end and _parse(data[last:end]) is None else end]


def _parse(line: bytes) -> Row | None:
    """Return the JSON object of a UTF-8 line; None for anything else."""
    if len(line) > MAX_LINE:
        return None
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _is_writable(row: Row) -> bool:
    """Return whether a journal can hold a row: NaN and infinity are not JSON, though Python parses them."""
    try:
        as_line(row)
    except (ValueError, RecursionError):
        return False
    return True
