"""Terminal-safe output of untrusted text: file names, item ids, model answers, server replies."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import Progress
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls except tab and newline: escape, CSI, carriage return, bell
    "\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line separators, and controls of text direction
    "\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible
    "\ud800-\udfff]"  # lone surrogates, which cannot be encoded
)
"""Characters that control a terminal, hide text or reverse it."""


def printable(text: str) -> str:
    """Return text with every control character replaced; newlines and tabs stay."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return text on one line, without control characters."""
    return printable(" ".join(text.split()))


def json_text(data: Any, indent: int | None = None) -> str:
    """Return data as JSON with readable letters and escaped control characters; ValueError for NaN."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
    return CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text)


class SafeConsole(Console):
    """A rich console that makes all text printable; styles and cursor moves are its own."""

    def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> "Iterable[Segment]":
        """Yield rich's segments with their text made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def render_str(self, text: str, **how: Any) -> Text:
        """Parse markup and emoji of text, made printable before its width is measured."""
        return super().render_str(printable(text), **how)

    @property
    def file(self) -> IO[str]:
        """Underlying stream: a console's own control codes are not filtered."""
        return _unwrapped(super().file)

    @file.setter
    def file(self, file: IO[str]) -> None:
        self._file = file


class SafeProgress(Progress):
    """A progress bar; lines printed beside it are made printable before rich parses their colours."""

    def start(self) -> None:
        """Show the bar, and filter the streams that it redirects."""
        super().start()
        _guard(lambda stream: isinstance(stream, FileProxy))


class SafeStream:
    """A wrapper of a text stream that writes printable text only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, made printable."""
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, made printable."""
        for line in lines:
            self.write(line)

    @property
    def rich_proxied_file(self) -> IO[str]:
        """Underlying stream, which rich's consoles write to."""
        return _unwrapped(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_output() -> None:
    """Filter everything printed from now on: by print, logging, warnings, tracebacks and other libraries.

    Characters that the stream cannot encode are replaced too, so that no answer is lost to the terminal's encoding.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    _guard(lambda stream: stream is not None and not isinstance(stream, SafeStream))


def _guard(wanted: Callable[[Any], bool]) -> None:
    for name in ("stdout", "stderr"):
        if wanted(stream := getattr(sys, name)):
            setattr(sys, name, SafeStream(stream))


def _unwrapped(file: IO[str]) -> IO[str]:
    while (inner := getattr(file, "rich_proxied_file", None)) is not None:
        file = inner
    return file
