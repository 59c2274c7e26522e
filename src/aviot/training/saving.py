"""Checkpoints that are there whole or not at all: written under another name, made durable, then renamed."""

import os
import re
import shutil
from pathlib import Path

from aviot.files import sync

_WHOLE = re.compile(r"checkpoint-(\d+)")
_PARTIAL = re.compile(r"\.checkpoint-\d+\.partial")


def checkpoints(run: Path) -> dict[int, Path]:
    """The whole checkpoints of a run by their step, oldest first."""
    found = {}
    if run.is_dir():
        for path in run.iterdir():
            match = _WHOLE.fullmatch(path.name)
            if match and path.is_dir():
                found[int(match.group(1))] = path
    return dict(sorted(found.items()))


def newest(run: Path) -> Path | None:
    """The checkpoint a run goes on from."""
    return next(reversed(checkpoints(run).values()), None)


def whole_path(run: Path, step: int) -> Path:
    """Where the checkpoint of a step is once it is whole."""
    return run / f"checkpoint-{step}"


def begin(run: Path, step: int) -> Path:
    """An empty folder beside the whole checkpoints to write one into."""
    folder = partial_path(run, step)
    shutil.rmtree(folder, ignore_errors=True)
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
    """Give a written and durable checkpoint its name."""
    partial_path(run, step).rename(whole_path(run, step))
    sync(run)


def rotate(run: Path, keep: int) -> None:
    """Remove all but the newest checkpoints; one that is being removed is no longer whole by its name."""
    for step, path in list(checkpoints(run).items())[:-keep]:
        leaving = partial_path(run, step)
        path.rename(leaving)
        shutil.rmtree(leaving)


def remove_leftovers(run: Path) -> None:
    """Remove what a killed save or rotation left."""
    if run.is_dir():
        for path in run.iterdir():
            if _PARTIAL.fullmatch(path.name):
                shutil.rmtree(path)
