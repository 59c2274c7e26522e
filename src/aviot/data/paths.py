"""The file that a record means by its video: inside the given folder, whatever the record says."""

import re
from pathlib import Path, PurePosixPath

from aviot.data.errors import RecordError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

MAX_PATH = 4096
"""Characters of a path that Linux opens."""


def check_video_name(name: object) -> str:
    """A relative path without a way out; symbolic links are not looked at, since the folder's owner put them there."""
    if not isinstance(name, str):
        raise RecordError(f"video must be the path of one video as text, got {_short(name)}")
    if not name.strip() or len(name) > MAX_PATH:
        raise RecordError(f"video must be a path of 1 to {MAX_PATH} characters, got {len(name)}: {_short(name)}")
    if _CONTROL.search(name):
        raise RecordError(f"video must be a path without control characters, got {_short(name)}")
    if "://" in name:
        raise RecordError(f"video must be a path below the video folder, got the address {_short(name)}; download it")
    path = PurePosixPath(name)
    if path.is_absolute() or Path(name).is_absolute():
        raise RecordError(f"video must be a path below the video folder, got the absolute {_short(name)}")
    if ".." in Path(name).parts or not path.parts:
        raise RecordError(f"video must be a path below the video folder, got {_short(name)}")
    return name


def _short(value: object) -> str:
    text = repr(value[:200]) if isinstance(value, str) else type(value).__name__
    return f"{text}…" if isinstance(value, str) and len(value) > 200 else text
