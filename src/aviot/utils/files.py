"""Atomic writes, early checks of output paths, and locks on output folders."""

import fcntl
import logging
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

logger = logging.getLogger(__name__)

TEMPORARY = ".tmp"
LOCK = "run.lock"  # the file stays in the folder; the lock on it ends with its process


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it replaces `path` if the block succeeds, and is removed otherwise."""
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


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; its files move to `folder`, each atomically, if the block succeeds.

    A `folder` that does not exist yet is created with all files at once.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{uuid4().hex}{TEMPORARY}")
    temporary.mkdir()
    try:
        yield temporary
        if not folder.exists():
            temporary.rename(folder)
            return
        for path in sorted(path for path in temporary.rglob("*") if path.is_file()):
            target = folder / path.relative_to(temporary)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file atomically and flush it to disk, so that it also survives a crash of the machine."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


def has_content(path: Path, data: bytes) -> bool:
    """Return whether a file holds exactly these bytes; one of another size is not read."""
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


@contextmanager
def explain_write_errors(path: Path, advice: str) -> Iterator[None]:
    """Re-raise an OSError of the block, such as a full disk, with a message that names `path` and a remedy."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error.__cause__ or error
        raise OSError(f"{path} could not be written: {reason}; {advice}") from error


def check_folder(folder: Path, advice: str) -> None:
    """Raise ValueError if a folder cannot be created or written into, before the work for it starts."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file; {advice}")
    _try_to_write(nearest, "aviot", advice)


def check_output(path: Path) -> None:
    """Raise ValueError if a file cannot be written, before the work for it starts."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file to write")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a device, pipe or socket, which cannot be replaced; name a regular file")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a directory; make it first")
    _try_to_write(path.parent, path.name, "name a file elsewhere")


def check_regular(path: Path) -> None:
    """Refuse a link, folder, pipe or device in the place of a file that a run writes; it may also be missing."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"{path} is not a regular file, as a run writes it; remove it, or name another folder")


def check_outputs_differ(outputs: Mapping[str, Path | None], source: Path | None) -> None:
    """Raise ValueError for outputs that cannot be written, or that would overwrite the source or each other."""
    taken = {} if source is None else {source.resolve(): "the video itself"}
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(path)
        if path.resolve() in taken:
            raise ValueError(f"{path} is {taken[path.resolve()]}; name another file for {name}")
        taken[path.resolve()] = name


def _try_to_write(folder: Path, name: str, advice: str) -> None:
    """Write one byte under a temporary name: permissions do not reveal a read-only or full file system."""
    try:
        with _temporary(folder / name) as probe:
            probe.write_bytes(b"0")
    except OSError as error:
        raise ValueError(f"nothing can be written in {folder} ({error.strerror}); {advice}") from error


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_held: set[int] = set()
"""File descriptors of the locks that this process holds."""


def _release_in_child() -> None:
    """Close the parent's locks in a forked child, such as a data loader's worker, which may outlive it by seconds."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def folder_lock(folder: Path, advice: str) -> Iterator[None]:
    """Hold the exclusive lock of a folder until the block or the process ends; ValueError if another holds it.

    The folder itself is locked if the file system supports it, so that removing the lock file does not release it. A
    folder that was created here and is still empty at the end is removed.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()  # one lock for all names of a folder
    check_regular(folder / LOCK)
    refusal = f"another process is writing into {folder}{_holder(folder)}; {advice}"
    with _locked(folder, os.O_RDONLY, refusal), _locked(folder / LOCK, os.O_RDWR | os.O_CREAT, refusal) as handle:
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        try:
            yield
        finally:
            if created and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                for path in created:
                    with suppress(OSError):
                        path.rmdir()


@contextmanager
def _locked(path: Path, flags: int, refusal: str) -> Iterator[int]:
    """Lock a file or folder and yield its descriptor; links are not followed, since their target would be written."""
    handle = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    _held.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
            raise BlockingIOError  # removed by its last holder since it was opened
    except BlockingIOError:
        _close(handle)
        raise ValueError(refusal) from None
    except OSError as error:  # NFS cannot lock directories, and some cluster file systems nothing at all
        if flags != os.O_RDONLY:
            logger.warning("%s cannot be locked (%s): make sure that nothing else writes there", path, error.strerror)
    try:
        yield handle
    finally:
        _close(handle)


def _close(handle: int) -> None:
    if handle in _held:  # else closed already, as in a forked child
        _held.discard(handle)
        os.close(handle)


def _holder(folder: Path) -> str:
    """Return a description of the process that holds the lock, empty if unknown."""
    try:
        text = (folder / LOCK).read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return ""
    return f" ({text})" if text.isprintable() and text else ""
