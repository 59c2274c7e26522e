"""The version of transformers that wrote a checkpoint, compared with the installed one."""

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

_NUMBER = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


def newer_version(config: Mapping[str, Any]) -> str | None:
    """Return the version that a config.json was written by, if it is newer than the installed transformers."""
    written = config.get("transformers_version")
    if not isinstance(written, str):
        return None
    theirs, ours = _parts(written), _parts(version("transformers"))
    return written if theirs is not None and ours is not None and theirs > ours else None


def _parts(text: str) -> tuple[int, ...] | None:
    """Return a version's numbers; None for anything that does not start with a version."""
    found = _NUMBER.match(text)
    return None if found is None else tuple(int(part or 0) for part in found.groups())
