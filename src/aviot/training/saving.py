"""Checkpoints that are there whole or not at all: written under another name, made durable, then renamed."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from aviot.training.ledger import manifest_digest, read_ledger, write_ledger
from aviot.utils.files import explain_write_errors, sync

ASIDE = "set-aside-"  # in front of the name of what a resumed run replaces
TRY_AGAIN = "free some space or make it writable, and resume: the checkpoints before it are whole"

_WHOLE = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
_WRITER = re.compile(
    "inline_container|PytorchStreamWriter|iostream|while serializing"
)  # in torch's, safetensors' errors
_PARTIAL = re.compile(r"\.checkpoint-[0-9]+\.partial")


def checkpoints(run: Path) -> dict[int, Path]:
    """The checkpoints of a run by their step, oldest first: whatever has the name of one."""
    found = {step_of(path): path for path in run.iterdir()} if run.is_dir() else {}
    return {step: found[step] for step in sorted(step for step in found if step is not None)}


def step_of(path: Path) -> int | None:
    """Return the step in a checkpoint's name; None for another name."""
    match = _WHOLE.fullmatch(path.name)
    return int(match.group(1)) if match else None


def newest(run: Path) -> Path | None:
    """The checkpoint a run goes on from."""
    return next(reversed(checkpoints(run).values()), None)


def whole_path(run: Path, step: int) -> Path:
    """Where the checkpoint of a step is once it is whole."""
    return run / f"checkpoint-{step}"


def begin(run: Path, step: int) -> Path:
    """An empty folder beside the whole checkpoints to write one into."""
    folder = partial_path(run, step)
    _remove(folder)
    folder.mkdir(parents=True)
    return folder


def partial_path(run: Path, step: int) -> Path:
    """Where the checkpoint of a step is while it is written."""
    return run / f".checkpoint-{step}.partial"


def make_durable(folder: Path) -> None:
    """Wait until everything below a folder is on disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync(Path(parent) / name)
        sync(Path(parent))


def finish(run: Path, step: int) -> None:
    """Give a written and durable checkpoint its name, and record that it was written."""
    partial_path(run, step).rename(whole_path(run, step))
    sync(run)
    written = manifest_digest(whole_path(run, step))
    known = {one: found for one, found in read_ledger(run).items() if one in checkpoints(run)}
    write_ledger(run, known | ({} if written is None else {step: written}))


def rotate(run: Path, keep: int) -> None:
    """Remove all but the newest checkpoints; one that is being removed is no longer whole by its name."""
    for step, path in list(checkpoints(run).items())[:-keep]:
        leaving = partial_path(run, step)
        _remove(leaving)
        path.rename(leaving)
        _remove(leaving)


def remove_leftovers(run: Path) -> None:
    """Remove what a killed save or rotation left."""
    if run.is_dir():
        for path in run.iterdir():
            if _PARTIAL.fullmatch(path.name):
                _remove(path)


def move_aside(path: Path) -> Path:
    """Rename a file or folder so that nothing takes it for what it was; returns its new name."""
    names = (path.with_name(f"{ASIDE}{path.name}{suffix}") for suffix in ("", *(f".{n}" for n in range(2, 10_000))))
    target = next(name for name in names if not os.path.lexists(name))
    path.rename(target)
    return target


@contextmanager
def naming_failures_to_write(run: Path, step: int) -> Iterator[None]:
    """Remove what there is of a checkpoint that cannot be written, and say in a sentence which one and why."""
    with explain_write_errors(whole_path(run, step), TRY_AGAIN):
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            left = shutil.disk_usage(run).free / 1e9
            shutil.rmtree(partial_path(run, step), ignore_errors=True)
            if isinstance(error, OSError) or not _WRITER.search(str(error)):
                raise
            reason = f"a file of it was cut short, with {left:,.1f} GB left on the disk"
            raise OSError(errno.EIO, reason) from error


def _remove(path: Path) -> None:
    """Remove a folder with all that is in it, or a link or file in its place."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
