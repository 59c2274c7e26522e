"""Atomic checkpoints: written under a temporary name, made durable, then renamed; old ones removed."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from aviot.training.manifest import manifest_digest, read_ledger, write_ledger
from aviot.utils.files import explain_write_errors, sync

ASIDE = "set-aside-"  # prefix of files and folders that a resumed run replaces
TRY_AGAIN = "free some space or make it writable, and resume: the checkpoints before it are intact"

_CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
_PARTIAL = re.compile(r"\.checkpoint-[0-9]+\.partial")
_WRITE_ERROR = re.compile("inline_container|PytorchStreamWriter|iostream|while serializing")  # torch's, safetensors'


def checkpoints(run: Path) -> dict[int, Path]:
    """Return everything in a run folder that has a checkpoint's name, by step, oldest first."""
    paths = {step_of(path): path for path in run.iterdir()} if run.is_dir() else {}
    return {step: paths[step] for step in sorted(step for step in paths if step is not None)}


def step_of(path: Path) -> int | None:
    """Return the step in a checkpoint's name; None for another name."""
    match = _CHECKPOINT.fullmatch(path.name)
    return int(match.group(1)) if match else None


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the path of a step's complete checkpoint."""
    return run / f"checkpoint-{step}"


def partial_path(run: Path, step: int) -> Path:
    """Return the path of a step's checkpoint while it is written."""
    return run / f".checkpoint-{step}.partial"


def begin(run: Path, step: int) -> Path:
    """Create an empty folder to write a checkpoint into."""
    folder = partial_path(run, step)
    _remove(folder)
    folder.mkdir(parents=True)
    return folder


def make_durable(folder: Path) -> None:
    """Wait until everything below a folder is on disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync(Path(parent) / name)
        sync(Path(parent))


def finish(run: Path, step: int) -> None:
    """Rename a durable checkpoint to its final name, and add it to the ledger."""
    partial_path(run, step).rename(checkpoint_path(run, step))
    sync(run)
    written = manifest_digest(checkpoint_path(run, step))
    ledger = {known: sha256 for known, sha256 in read_ledger(run).items() if known in checkpoints(run)}
    write_ledger(run, ledger | ({} if written is None else {step: written}))


def rotate(run: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, each renamed first so that none is found incomplete."""
    for step, path in list(checkpoints(run).items())[:-keep]:
        removed = partial_path(run, step)
        _remove(removed)
        path.rename(removed)
        _remove(removed)


def remove_leftovers(run: Path) -> None:
    """Remove the remains of a killed save or rotation."""
    if run.is_dir():
        for path in run.iterdir():
            if _PARTIAL.fullmatch(path.name):
                _remove(path)


def move_aside(path: Path) -> Path:
    """Rename a file or folder to a name that nothing loads; returns the new path."""
    names = (path.with_name(f"{ASIDE}{path.name}{suffix}") for suffix in ("", *(f".{n}" for n in range(2, 10_000))))
    target = next(name for name in names if not os.path.lexists(name))
    path.rename(target)
    return target


@contextmanager
def naming_write_failures(run: Path, step: int) -> Iterator[None]:
    """Remove a checkpoint that cannot be written, and raise an OSError that names it, the reason and what to do."""
    with explain_write_errors(checkpoint_path(run, step), TRY_AGAIN):
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            free = shutil.disk_usage(run).free / 1e9
            shutil.rmtree(partial_path(run, step), ignore_errors=True)
            if isinstance(error, OSError) or not _WRITE_ERROR.search(str(error)):
                raise
            raise OSError(errno.EIO, f"a file was truncated, with {free:,.1f} GB free on the disk") from error


def _remove(path: Path) -> None:
    """Remove a folder and its contents, or a link or file of that name."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
