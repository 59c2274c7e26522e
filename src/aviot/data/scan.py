"""Streaming scanner of JSON arrays and JSONL files, which holds a few megabytes of a file at most."""

import codecs
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from aviot.data.checks import DataError, RepeatedKey

CHUNK = 2**20
MAX_RECORD = 2**24
"""Size in bytes of the longest accepted record: 16 MiB, a thousand times the longest published one."""

MAX_TOKEN = 64
"""Characters at the end of the window in which a syntax error may be a token that is merely incomplete."""

_SPACE = re.compile(r"[ \t\r\n]*")
_DELIMITER = re.compile(r"[ \t\r\n,\]]")
_BOM = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value found in a file, with its location; `problem` tells why there is no valid one."""

    number: int  # of the element, or of the line, from 1
    line: int
    offset: int  # in bytes
    length: int  # in bytes
    value: Any
    problem: str | None = None


def decode_json(data: bytes) -> Any:
    """Return the JSON value of UTF-8 bytes; ValueError, with a clear message, for anything else."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_parse_object)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({_message(error)} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class Scanner:
    """An iterator over the JSON values of a file; afterwards `digest` is the hash of all its bytes."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._hash = hashlib.sha256()
        self.is_array = False

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes read so far."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[Found]:
        """Yield the elements of an array, or the lines; the first non-space character decides."""
        head = self._file.read(CHUNK)
        start = len(_BOM) if head.startswith(_BOM) else 0
        first = head[start:].lstrip(b" \t\r\n")[:1]
        self._file.seek(0)
        if first == b"[":
            self.is_array = True
            return _ArrayScanner(self._read, self._name, start).scan()
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


class _ArrayScanner:
    """A sliding window over the text of an array."""

    def __init__(self, read: Callable[[int], bytes], name: str, start: int) -> None:
        self._read = read
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(object_pairs_hook=_parse_object)
        self._text, self._position, self._ended = "", 0, False
        self._offset, self._line, self._number = start, 1, 1
        self._bytes_read = len(read(start))

    def scan(self) -> Iterator[Found]:
        """Yield every element; DataError if the array is incomplete or invalid."""
        self._skip_space()
        self._advance(self._position + 1)  # the bracket
        following = self._peek()
        while following != "]":
            line, offset = self._line, self._offset
            value, end = self._element()
            self._advance(end)
            yield Found(self._number, line, offset, self._offset - offset, value)
            following = self._peek()
            if following not in (",", "]"):
                self._fail(
                    f"a comma or ] was expected after the element, got {following!r}" if following else _UNCLOSED
                )
            if following == ",":
                self._number += 1
                self._advance(self._position + 1)
                if self._peek() == "]":
                    self._fail("a record was expected after the comma, got ]; remove the comma")
        self._advance(self._position + 1)
        if rest := self._peek():
            self._fail(f"nothing may follow the closing ], got {rest!r}")

    def _element(self) -> tuple[Any, int]:
        """Return the value that starts here and its end, reading on until it is complete."""
        size = CHUNK
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._position)
            except (ValueError, RecursionError) as error:
                if self._ended or _is_final(error, self._text):
                    self._fail(_describe(error, self._text, self._position))
            else:
                complete = _DELIMITER.match(self._text, end) or len(self._text) - end > MAX_TOKEN
                if complete or self._ended:  # else a number may continue
                    return value, end
            if len(self._text) - self._position > MAX_RECORD:
                self._fail(f"it is longer than {MAX_RECORD:,} bytes")
            self._fill(size)
            size *= 2

    def _peek(self) -> str:
        """Return the next non-space character, empty at the end of the file."""
        self._skip_space()
        return self._text[self._position : self._position + 1]

    def _skip_space(self) -> None:
        while True:
            match = _SPACE.match(self._text, self._position)
            self._advance(match.end() if match else self._position)
            if self._position < len(self._text) or self._ended:
                return
            self._fill(CHUNK)

    def _advance(self, end: int) -> None:
        skipped = self._text[self._position : end]
        self._offset += len(skipped.encode())
        self._line += skipped.count("\n")
        self._position = end

    def _fill(self, size: int) -> None:
        data = self._read(size)
        self._ended = not data
        try:
            text = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            pending = len(error.object) - len(data)
            raise DataError(f"{self._name} is not UTF-8: byte {self._bytes_read - pending + error.start}") from None
        self._bytes_read += len(data)
        self._text, self._position = self._text[self._position :] + text, 0

    def _fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self._name}, element {self._number} (line {self._line}): {problem}")


_UNCLOSED = "the file ends inside the array; it may be truncated, download or export it again"


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts = Counter(key for key, _ in pairs)
    return RepeatedKey(pairs, counts.most_common(1)[0][0])


def _is_final(error: Exception, text: str) -> bool:
    """Return whether reading on cannot resolve an error: it lies well before the end of the window."""
    if not isinstance(error, json.JSONDecodeError):
        return True
    return not error.msg.startswith("Unterminated string") and len(text) - error.pos > MAX_TOKEN


def _describe(error: Exception, text: str, start: int) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error})"
    if error.msg.startswith("Unterminated string"):
        return f"the file ends inside a text that begins at its character {error.pos - start + 1}; is it truncated?"
    if error.pos >= len(text.rstrip()):
        return _UNCLOSED
    return f"it is not JSON ({_message(error)} at character {error.pos - start + 1})"


def _message(error: json.JSONDecodeError) -> str:
    """Return the library's message, some of which end in "at" already."""
    return error.msg.removesuffix(" at")
