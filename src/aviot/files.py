"""Files that are there whole or not at all, and whether they could be."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

TEMPORARY = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place when the block ends well and is removed when not."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}{TEMPORARY}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_durably(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, also after the machine has stopped."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


def check_folder(folder: Path, advice: str) -> None:
    """Refuse a folder that could not be made or written into, before the work for it is done."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file; {advice}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"nothing can be written in {nearest}; {advice}")


def check_output(path: Path) -> None:
    """Refuse a file that could not be written, before the work for it is done."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file to write")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no folder; make it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"nothing can be written in {path.parent}; name a file elsewhere")


def sync(path: Path) -> None:
    """Wait until a file's bytes, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
