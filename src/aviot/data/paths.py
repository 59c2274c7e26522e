"""The file that a record means by its video, and which files records may name."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aviot.data.errors import RecordError
from aviot.data.json_values import quoted
from aviot.video.checks import VIDEO_SUFFIXES

MAX_PATH = 4096
"""Characters of a path that Linux opens."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class VideoFolder:
    """The files that the records of a source may name.

    Relative paths lie below `root`; they never lead out of it by "..". Symbolic links are followed: the folder's owner
    made them. Absolute paths may lie below `root` too. `absolute` says which others are accepted: True, every path that
    is named like a video file; False, none; or the folders below which any path is accepted.
    """

    root: Path | None = None
    absolute: bool | tuple[str, ...] = True

    def check(self, name: object) -> str:
        """Return the path that a record names; RecordError unless it may."""
        if not isinstance(name, str):
            raise RecordError(f"video must be the path of one video as text, got {quoted(name)}")
        if not name.strip() or len(name) > MAX_PATH:
            raise RecordError(f"video must be a path of 1 to {MAX_PATH} characters, got {len(name)}: {quoted(name)}")
        name = _local(name)
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


ANYWHERE = VideoFolder()
"""Any relative path, and any absolute one that is named like a video file."""


def _local(name: str) -> str:
    """Return the path of a file:// address, or the name itself; other addresses are refused."""
    parts = urlsplit(name) if name.startswith("file://") else None
    if parts is not None and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    if "://" in name or name.startswith("data:"):
        raise RecordError(
            f"video must be the path of a local file, got the address {quoted(name)}; download it and name the file"
        )
    return name
