"""Atomic writes, early checks of output paths, and the lock of a run's folder."""

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
LOCK = "run.lock"  # stays in the folder; what counts is the lock on it, which ends with its process


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


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write files into, which move to `folder` one by one, each whole, if the block succeeds.

    A `folder` that does not exist yet appears with all of them at once.
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
            place = folder / path.relative_to(temporary)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def check_regular(path: Path) -> None:
    """Refuse a link, folder, pipe or device in the place of a file that a run writes; it may also be missing."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"{path} is not a regular file, as a run writes it; remove it, or name another folder")


def check_outputs_differ(outputs: Mapping[str, Path | None], source: Path | None) -> None:
    """Refuse files that could not be written, and those that would take the place of the source or of each other."""
    taken = {} if source is None else {source.resolve(): "the video itself"}
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(path)
        if path.resolve() in taken:
            raise ValueError(f"{path} is {taken[path.resolve()]}; name another file for {name}")
        taken[path.resolve()] = name


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


_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


def _let_go() -> None:
    """Close a parent's locks in a forked child, which may outlive it: a data loader's worker does for seconds."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def only_writer(folder: Path, advice: str) -> Iterator[None]:
    """Hold the lock of a folder, which ends with the process however it ends; ValueError while another holds it.

    The folder itself is locked where the file system can, so that removing the file in it frees nothing. A folder that
    had to be made and is still empty goes away again.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()  # one lock, by whichever name
    check_regular(folder / LOCK)
    refusal = f"another process is writing into {folder}{_holder(folder)}; {advice}"
    with _locked(folder, os.O_RDONLY, refusal), _locked(folder / LOCK, os.O_RDWR | os.O_CREAT, refusal) as handle:
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        try:
            yield
        finally:
            if made and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                for place in made:
                    with suppress(OSError):
                        place.rmdir()


@contextmanager
def _locked(path: Path, flags: int, refusal: str) -> Iterator[int]:
    """Lock a file or directory through a descriptor of its own; links are not followed, lest theirs is overwritten."""
    handle = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    _held.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
            raise BlockingIOError  # removed by its last holder since it was opened
    except BlockingIOError:
        _close(handle)
        raise ValueError(refusal) from None
    except OSError as error:  # NFS locks no directories, some cluster file systems nothing at all
        if flags != os.O_RDONLY:
            logger.warning("%s cannot be locked (%s): make sure that nothing else writes there", path, error.strerror)
    try:
        yield handle
    finally:
        _close(handle)


def _close(handle: int) -> None:
    if handle in _held:  # not closed yet, as it is in a forked child
        _held.discard(handle)
        os.close(handle)


def _holder(folder: Path) -> str:
    """Describe the process that holds the lock, as far as it says so."""
    try:
        told = (folder / LOCK).read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return ""
    return f" ({told})" if told.isprintable() and told else ""
