"""Atomic writes and early checks of output paths."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

TEMPORARY = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to, which takes its place if the block succeeds and is removed if not."""
    with _temporary(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f"{path.name}.{uuid4().hex}{TEMPORARY}")
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_durably(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, also after the machine has stopped."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


@contextmanager
def naming_failures(path: Path, advice: str) -> Iterator[None]:
    """Raise an error of the file system, such as a full disk, as a sentence that names `path` and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error.__cause__ or error
        raise OSError(f"{path} could not be written: {reason}; {advice}") from error


def check_folder(folder: Path, advice: str) -> None:
    """Refuse a directory that could not be made or written into, before the work for it is done."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file; {advice}")
    _try_to_write(nearest, "aviot", advice)


def check_output(path: Path) -> None:
    """Refuse a file that could not be written, before the work for it is done."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file to write")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a device, pipe or socket, which cannot be replaced; name a regular file")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a directory; make it first")
    _try_to_write(path.parent, path.name, "name a file elsewhere")


def _try_to_write(folder: Path, name: str, advice: str) -> None:
    """Write one byte under a temporary name; permissions do not show that a file system is read-only or full."""
    try:
        with _temporary(folder / name) as probe:
            probe.write_bytes(b"0")
    except OSError as error:
        raise ValueError(f"nothing can be written in {folder} ({error.strerror}); {advice}") from error


def sync(path: Path) -> None:
    """Wait until a file's bytes, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
