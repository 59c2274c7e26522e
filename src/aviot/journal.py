"""Rows on disk as they come: each whole and durable before the next, whatever kills the process."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from aviot.files import check_regular, sync
from aviot.printing import json_text

Row = dict[str, Any]


LONGEST_LINE = 2**26
"""Bytes of a row at most; the longest that is written has a few hundred thousand."""


class JournalError(ValueError):
    """Rows on disk that cannot be trusted, or that another process is writing."""


class Journal:
    """A JSONL file that one process at a time adds rows to; a line that a kill tore makes way for the first of them.

    A file that has no whole row yet can only be one that a kill tore: the beginning of the `first` row, where it is
    known what that is. Whatever else it may be is refused, and stays as it is.
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
    """A row as it is written: keys in their order, letters as they are, no NaN."""
    return json_text(row).encode() + b"\n"


def read_rows(path: Path) -> list[Row]:
    """Every whole row; a torn last line is none, damage anywhere else an error."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(_whole_lines(path.read_bytes()).split(b"\n")[:-1], 1):
        row = _parsed(line)
        if row is None or not _could_be_written(row):
            raise JournalError(
                f"{path}, line {number} is no row of a run; the file was changed or is another's, name another folder"
            )
        rows.append(row)
    return rows


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time, by a lock that ends with the process."""
    check_regular(path)
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
    """An object of JSON in UTF-8; None for anything else."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _could_be_written(row: Row) -> bool:
    """Whether a journal can hold a row: NaN and infinity are no JSON, though Python reads them."""
    try:
        as_line(row)
    except (ValueError, RecursionError):
        return False
    return True
