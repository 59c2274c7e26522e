"""Errors and checks of training data: JSON values, YAML keys, and the video files that records may name."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from aviot.video.checks import VIDEO_SUFFIXES

MAX_PATH = 4096
"""Characters of the longest path that Linux opens."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class DataError(ValueError):
    """Training data that cannot be used; the message names the place, what was expected there, and a remedy."""


class RecordError(DataError):
    """A single record that cannot be used."""


class RepeatedKey(dict[str, Any]):
    """A JSON object with a repeated key, which `key` names."""

    def __init__(self, pairs: list[tuple[str, Any]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def check_object(value: Any, what: str) -> None:
    """Raise RecordError unless the value is a JSON object without repeated keys."""
    if not isinstance(value, dict):
        raise RecordError(f"{what} must be a JSON object, got {json_type(value)}")
    check_keys(value, what)


def check_keys(value: Any, what: str, error: type[ValueError] = RecordError) -> None:
    """Raise an error if the value is a JSON object with a repeated key."""
    if isinstance(value, RepeatedKey):
        raise error(f"{what} has the key {value.key[:80]!r} twice; it is unclear which is meant")


def check_text(text: str, what: str, error: type[ValueError] = RecordError) -> str:
    """Return the text; raise an error if it holds a lone surrogate, which JSON allows but UTF-8 cannot encode."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise error(f"{what} holds half a character (a lone surrogate, such as \\ud800)") from None
    return text


def is_given(value: Any) -> bool:
    """Return whether a key has a value; exporters write null or an empty list for a column without one."""
    return not (value is None or (isinstance(value, str | list | dict) and not value))


def quoted(value: object) -> str:
    """Return text in quotes, shortened to a readable length, or the name of a value's type."""
    if not isinstance(value, str):
        return type(value).__name__
    return f"{value[:200]!r}…" if len(value) > 200 else repr(value)


def json_type(value: Any) -> str:
    """Return the name of a value's JSON type."""
    names = {list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return "an object" if isinstance(value, dict) else names.get(type(value), "a number")


@cache
def unique_keys_loader() -> Any:
    """Return a safe YAML loader class that raises an error for a repeated key."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) != len(node.value):
                line = node.start_mark.line + 1
                raise yaml.constructor.ConstructorError(None, None, f"a key is there twice below line {line}", None)
            return mapping

    return Loader


@dataclass(frozen=True)
class VideoFolder:
    """The video files that the records of a source may name.

    Relative paths start at `root` and must not contain "..". Symbolic links are followed, since the folder's owner
    created them. Absolute paths below `root` are accepted too. `absolute` decides on the others: True accepts every
    path with the suffix of a video file, False none, and a tuple of folders every path below these.
    """

    root: Path | None = None
    absolute: bool | tuple[str, ...] = True

    def check(self, name: object) -> str:
        """Return the path that a record names; RecordError unless it is accepted."""
        if not isinstance(name, str):
            raise RecordError(f"video must be the path of one video as text, got {quoted(name)}")
        if not name.strip() or len(name) > MAX_PATH:
            raise RecordError(f"video must be a path of 1 to {MAX_PATH} characters, got {len(name)}: {quoted(name)}")
        name = _local_path(name)
        if _CONTROL.search(name):
            raise RecordError(f"video must be a path without control characters, got {quoted(name)}")
        path = Path(name)
        if ".." in path.parts or not path.parts:
            raise RecordError(
                f"video must be a path below the video folder, got {quoted(name)}; write it without '..', or set "
                "data.video_root to a folder above the video"
            )
        if path.is_absolute():
            self._check_absolute(path)
        return name

    def _check_absolute(self, path: Path) -> None:
        roots = [] if self.root is None else [self.root.absolute(), self.root.resolve()]
        if not isinstance(self.absolute, bool):
            roots += [Path(root) for root in self.absolute]
        if any(path.is_relative_to(root) for root in roots):
            return
        fix = f"set data.video_root to a folder above it, or data.absolute_paths to [{str(path.parent)!r}]"
        got = f"got the absolute path {quoted(str(path))}"
        if self.absolute is False:
            raise RecordError(f"video must lie below the video folder (data.absolute_paths is false), {got}; {fix}")
        if self.absolute is not True:
            raise RecordError(f"video must lie below the video folder or a folder of data.absolute_paths, {got}; {fix}")
        if path.suffix.lower() not in VIDEO_SUFFIXES:
            raise RecordError(f"video must be named like a video file outside the video folder, {got}; {fix}")


ANY_FOLDER = VideoFolder()
"""Accepts any relative path, and any absolute one with the suffix of a video file."""


def _local_path(name: str) -> str:
    """Return the path of a file:// URL, or the name itself; RecordError for other URLs."""
    parts = urlsplit(name) if name.startswith("file://") else None
    if parts is not None and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    if "://" in name or name.startswith("data:"):
        raise RecordError(
            f"video must be the path of a local file, got the address {quoted(name)}; download it and name the file"
        )
    return name
