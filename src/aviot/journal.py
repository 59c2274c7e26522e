"""Rows on disk as they come: each whole and durable before the next, whatever kills the process."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from aviot.files import sync

Row = dict[str, Any]


class JournalError(ValueError):
    """Rows on disk that cannot be trusted, or that another process is writing."""


class Journal:
    """A JSONL file that one process at a time adds rows to; a line that a kill tore makes way for the first of them.

    A file that has no whole row yet can only be one that a kill tore: the beginning of the `first` row, where it is
    known what that is. Whatever else it may be is refused, and stays as it is.
    """

    def __init__(self, path: Path, first: Mapping[str, Any] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalError(f"another process is writing {path}; wait for it, or name another folder") from None
        try:
            self._torn_at: int | None = _length_of_rows(path, first)
        except JournalError:
            self._file.close()
            raise
        sync(path.parent)

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row; it is on disk when this returns."""
        if self._torn_at is not None:
            self._file.truncate(self._torn_at)
            self._torn_at = None
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
    """A row as it is written: keys in their order, text as it is, no NaN."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def read_rows(path: Path) -> list[Row]:
    """Every whole row; a torn last line is none, damage anywhere else an error."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(_whole_lines(path.read_bytes()).splitlines(), 1):
        row = _parsed(line)
        if row is None:
            raise JournalError(
                f"{path}, line {number} is no row of a run; the file was changed or is another's, name another folder"
            )
        rows.append(row)
    return rows


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time, by a lock that ends with the process."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _length_of_rows(path: Path, first: Mapping[str, Any] | None) -> int:
    """Bytes of a journal's whole rows."""
    read_rows(path)
    data = path.read_bytes()
    whole = _whole_lines(data)
    begun = data.strip(b"\0\n")
    torn = begun.startswith(b"{") if first is None else as_line(first).startswith(begun)
    if not whole and begun and not torn:
        raise JournalError(f"{path} is no journal of a run; it is left as it is, name another folder")
    return len(whole)


def _whole_lines(data: bytes) -> bytes:
    """A file's bytes without a torn last line: one that has no end, or that is no JSON."""
    end = data.rfind(b"\n") + 1
    last = data.rfind(b"\n", 0, max(0, end - 1)) + 1
    return data[: last if end and _parsed(data[last:end]) is None else end]


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
