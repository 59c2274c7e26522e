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

MAX_SIZE = 2**30
"""Size in bytes of the largest accepted file: rows are a few hundred bytes long, and all of them are kept in memory."""


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
    return _read(path)[0]


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for the exclusive lock on a file, and hold it until the block or the process ends."""
    check_regular(path)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _size_of_rows(path: Path, first: Mapping[str, Any] | None) -> int:
    """Return the size in bytes of a journal's complete rows."""
    _, complete, rest = _read(path)
    partial = rest.strip(b"\0\n")
    expected = partial.startswith(b"{") if first is None else as_line(first).startswith(partial)
    if not complete and partial and not expected:
        raise JournalError(f"{path} is not a journal of a run; it is left unchanged, name another folder")
    return complete


def _read(path: Path) -> tuple[list[Row], int, bytes]:
    """Return all complete rows, their size in bytes, and a partial last line: one without a newline, or not JSON.

    Line by line, so that damage ends the reading of a large file where it is.
    """
    if not path.is_file():
        return [], 0, b""
    if (size := path.stat().st_size) > MAX_SIZE:
        raise JournalError(
            f"{path} has {size:,} bytes, more than the {MAX_SIZE:,} that a run's rows may have; the file is damaged or "
            "has another origin: name another folder"
        )
    rows: list[Row] = []
    complete, last = 0, b""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 2):
            is_tail = len(line) < MAX_LINE + 2 and not line.endswith(b"\n")
            if last and not (is_tail and _parse(last) is None):
                rows.append(_row(last, path, len(rows) + 1))
                complete, last = complete + len(last), b""
            last += line
    if last.endswith(b"\n") and _parse(last) is not None:
        rows.append(_row(last, path, len(rows) + 1))
        complete, last = complete + len(last), b""
    return rows, complete, last


def _row(line: bytes, path: Path, number: int) -> Row:
    row = _parse(line)
    if row is None or not _is_writable(row):
        raise JournalError(
            f"{path}, line {number} is not a row of a run; the file was changed or has another origin: name another "
            "folder"
        )
    return row


def _parse(line: bytes) -> Row | None:
    """Return the JSON object of a UTF-8 line with its newline; None for anything else."""
    if len(line) > MAX_LINE + 1:
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
