"""Records found one after another in a JSON array or a JSONL file, never more than a few megabytes of it at once."""

import codecs
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from aviot.data.errors import DataError
from aviot.data.json_values import RepeatedKey

CHUNK = 2**20
MAX_RECORD = 2**24
"""Bytes of the longest record that is read: 16 MiB is a thousand times the longest published one."""

LONGEST_WORD = 64
"""Characters before the end of a window in which a mistake may be a word that is merely cut."""

_SPACE = re.compile(r"[ \t\r\n]*")
_DELIMITER = re.compile(r"[ \t\r\n,\]]")
_BOM = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at one place of a file: a JSON value, or why it is none."""

    number: int  # of the element, or of the line, from 1
    line: int
    offset: int  # in bytes
    length: int
    value: Any
    problem: str | None = None


def decode_json(data: bytes) -> Any:
    """One JSON value in UTF-8; ValueError, with a sentence, for anything else."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({_trouble(error)} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class Scanner:
    """Goes through a file once; afterwards `digest` is the hash of all its bytes."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._hash = hashlib.sha256()
        self.is_array = False

    @property
    def digest(self) -> str:
        """SHA-256 of what has been read."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[Found]:
        """Elements of an array, or lines: the first character that is no space tells."""
        head = self._file.read(CHUNK)
        start = len(_BOM) if head.startswith(_BOM) else 0
        first = head[start:].lstrip(b" \t\r\n")[:1]
        self._file.seek(0)
        if first == b"[":
            self.is_array = True
            return _Elements(self._read, self._name, start).scan()
        if first in (b"{", b""):
            return self._lines(start)
        raise DataError(
            f"{self._name} is neither a JSON array nor JSONL: it begins with {first!r}, where [ or {{ was expected"
        )

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def _lines(self, start: int) -> Iterator[Found]:
        self._read(start)
        offset, number = start, 0
        while line := self._line():
            number += 1
            length = len(line)
            if length > MAX_RECORD:
                while line and not line.endswith(b"\n"):
                    line = self._line()
                    length += len(line)
                yield Found(number, number, offset, 0, None, f"it is longer than {MAX_RECORD:,} bytes")
            elif line.strip():
                yield self._parse_line(line, number, offset)
            offset += length

    def _line(self) -> bytes:
        line = self._file.readline(MAX_RECORD + 1)
        self._hash.update(line)
        return line

    def _parse_line(self, line: bytes, number: int, offset: int) -> Found:
        try:
            return Found(number, number, offset, len(line), decode_json(line))
        except ValueError as error:
            return Found(number, number, offset, 0, None, str(error))


class _Elements:
    """A window on the text of an array, moved from element to element."""

    def __init__(self, read: Callable[[int], bytes], name: str, start: int) -> None:
        self._read = read
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(object_pairs_hook=_object)
        self._text, self._at, self._ended = "", 0, False
        self._offset, self._line, self._number = start, 1, 1
        self._taken = len(read(start))  # bytes read so far

    def scan(self) -> Iterator[Found]:
        """Every element; DataError where the array breaks off or is none."""
        self._skip_space()
        self._step(self._at + 1)  # the bracket
        closing = self._next()
        while closing != "]":
            line, offset = self._line, self._offset
            value, end = self._element()
            self._step(end)
            yield Found(self._number, line, offset, self._offset - offset, value)
            closing = self._next()
            if closing not in (",", "]"):
                self._fail(f"a comma or ] was expected after the element, got {closing!r}" if closing else _OPEN)
            if closing == ",":
                self._number += 1
                self._step(self._at + 1)
                if self._next() == "]":
                    self._fail("a record was expected after the comma, got ]; remove the comma")
        self._step(self._at + 1)
        if rest := self._next():
            self._fail(f"nothing may follow the closing ], got {rest!r}")

    def _element(self) -> tuple[Any, int]:
        """The value that begins here and where it ends, reading on until it is whole."""
        size = CHUNK
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if self._ended or _hopeless(error, self._text):
                    self._fail(_reason(error, self._text, self._at))
            else:
                whole = _DELIMITER.match(self._text, end) or len(self._text) - end > LONGEST_WORD
                if whole or self._ended:  # else a number may go on
                    return value, end
            if len(self._text) - self._at > MAX_RECORD:
                self._fail(f"it is longer than {MAX_RECORD:,} bytes")
            self._fill(size)
            size *= 2

    def _next(self) -> str:
        """The next character that is no space, or nothing at the end."""
        self._skip_space()
        return self._text[self._at : self._at + 1]

    def _skip_space(self) -> None:
        while True:
            match = _SPACE.match(self._text, self._at)
            self._step(match.end() if match else self._at)
            if self._at < len(self._text) or self._ended:
                return
            self._fill(CHUNK)

    def _step(self, end: int) -> None:
        passed = self._text[self._at : end]
        self._offset += len(passed.encode())
        self._line += passed.count("\n")
        self._at = end

    def _fill(self, size: int) -> None:
        data = self._read(size)
        self._ended = not data
        try:
            text = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            pending = len(error.object) - len(data)
            raise DataError(f"{self._name} is not UTF-8: byte {self._taken - pending + error.start}") from None
        self._taken += len(data)
        self._text, self._at = self._text[self._at :] + text, 0

    def _fail(self, why: str) -> NoReturn:
        raise DataError(f"{self._name}, element {self._number} (line {self._line}): {why}")


_OPEN = "the file ends inside the array; it may have been cut off, get it again"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts = Counter(key for key, _ in pairs)
    return RepeatedKey(pairs, counts.most_common(1)[0][0])


def _hopeless(error: Exception, text: str) -> bool:
    """Whether an element is wrong however it goes on: a mistake well before the end of what has been read."""
    if not isinstance(error, json.JSONDecodeError):
        return True
    return not error.msg.startswith("Unterminated string") and len(text) - error.pos > LONGEST_WORD


def _reason(error: Exception, text: str, start: int) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error})"
    if error.msg.startswith("Unterminated string"):
        return f"the file ends inside a text that begins at its character {error.pos - start + 1}; is it cut off?"
    if error.pos >= len(text.rstrip()):
        return _OPEN
    return f"it is not JSON ({_trouble(error)} at character {error.pos - start + 1})"


def _trouble(error: json.JSONDecodeError) -> str:
    """What is wrong; some of the library's messages end in "at" already."""
    return error.msg.removesuffix(" at")
