"""A checkpoint's JSON files, read within limits: regular files of a bounded size that do not lead elsewhere."""

import json
from pathlib import Path
from typing import Any

from aviot.backbones.checkpoints.errors import CheckpointError, reason_of

LARGEST_CONFIG = 4 * 2**20  # bytes; the largest published config has some tens of thousands
_EXPECTED = "expected a checkpoint's config"


def read_json(path: Path, largest: int = LARGEST_CONFIG) -> dict[str, Any]:
    """Return one of a checkpoint's files as a dict; refuse by its name what is not a JSON object of a bounded size."""
    check_file(path, largest)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the latter from brackets nested by the thousand
        raise CheckpointError(f"{path}: not JSON ({reason_of(error)})") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object, got {type(values).__name__}")
    return values


def check_file(path: Path, largest: int) -> None:
    """Refuse a file that is missing, not a regular file of the checkpoint's own folder, or larger than it may be."""
    if not path.is_file():
        found = "not a regular file" if path.is_symlink() or path.exists() else "no such file"
        raise CheckpointError(f"{path}: {found}; {_EXPECTED}")
    if path.is_symlink() and not _stays(path):
        raise CheckpointError(
            f"{path} is a link that leads out of the checkpoint's folder; copy the file it means into the folder"
        )
    if (size := path.stat().st_size) > largest:
        raise CheckpointError(f"{path} has {size:,} bytes, more than the {largest:,} that such a file can need")


def _stays(path: Path) -> bool:
    """Return whether a link ends in its own folder, or among the hub cache's blobs, which its snapshots link to."""
    folder = path.parent.resolve()
    homes = [folder]
    while folder != folder.parent:
        if folder.parent.name == "snapshots":
            homes.append(folder.parent.parent / "blobs")
        folder = folder.parent
    return any(path.resolve().is_relative_to(home) for home in homes)
