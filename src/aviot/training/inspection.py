"""Whether a checkpoint is as it was written, told from its files alone, before anything of it is loaded."""

import json
import stat
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.utils import ADAPTER_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME

from aviot.training import identity
from aviot.training.manifest import (
    FILE,
    THREADS,
    FileRecord,
    Manifest,
    ManifestError,
    all_files,
    hash_files,
    read_manifest,
)
from aviot.training.parts import misleading_folders, missing_parts, would_be_loaded
from aviot.training.saving import step_of

SHOWN = 6  # problems that a sentence lists


@dataclass(frozen=True)
class Inspection:
    """What was found: the checkpoint's manifest, if it has one that can be read, and what is wrong with its files."""

    checkpoint: Path
    step: int
    manifest: Manifest | None
    problems: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every file is as it was written."""
        return self.manifest is not None and not self.problems

    def told(self) -> str:
        """Return the problems in words."""
        more = len(self.problems) - SHOWN
        return "; ".join(self.problems[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def inspect_checkpoint(checkpoint: Path) -> Inspection:
    """Compare a checkpoint with its manifest, hashing every file; one without is checked for what can be seen."""
    step = step_of(checkpoint)
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return Inspection(checkpoint, step or 0, None, ("it is not a directory",))
    try:
        if not any(path.name == FILE for path in checkpoint.iterdir()):
            found = _state_step(checkpoint) if step is None else step
            return Inspection(checkpoint, found, None, tuple(_visible_problems(checkpoint, found)))
        manifest = read_manifest(checkpoint)
        problems = tuple(_problems(checkpoint, manifest, step))
    except ManifestError as error:
        return Inspection(checkpoint, step or 0, None, (f"{FILE}: {error}",))
    except OSError as error:
        return Inspection(checkpoint, step or 0, None, (f"it cannot be read ({error.strerror})",))
    return Inspection(checkpoint, manifest.step, manifest, problems)


def _problems(checkpoint: Path, manifest: Manifest, step: int | None) -> Iterator[str]:
    """Yield what differs from the manifest; files are read only if their names and sizes are right."""
    if step is not None and step != manifest.step:
        yield f"it was written at step {manifest.step} and has been renamed or copied"
    yield from _strangers(checkpoint, set(manifest.files))
    intact = []
    for name, record in manifest.files.items():
        if (problem := _look(checkpoint / name, record)) is None:
            intact.append(name)
        else:
            yield f"{shown(name)} {problem}"
    settings = _read_object(checkpoint / identity.FILE) if identity.FILE in intact else None
    parts = missing_parts(set(manifest.files), settings or {}, manifest.processes)
    yield from (f"{part} is missing" for part in parts if settings is not None)
    try:
        found = hash_files(checkpoint, intact)
    except OSError as error:
        yield f"{shown(Path(str(error.filename)).name)} cannot be read ({error.strerror})"
        return
    yield from (f"{shown(name)} was changed" for name, record in found if record != manifest.files[name])


def _look(path: Path, record: FileRecord) -> str | None:
    """Return what is wrong with a file, without reading it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(found.st_mode):
        return "is a link" if stat.S_ISLNK(found.st_mode) else "is not a regular file"
    if found.st_size != record.bytes:
        return f"has {found.st_size:,} bytes and was written with {record.bytes:,}"
    return None


def _strangers(checkpoint: Path, known: set[str]) -> Iterator[str]:
    """Yield what lies beside the listed files and would be loaded, and links, which lead anywhere."""
    for name in all_files(checkpoint):
        if name not in known and name != FILE:
            if (checkpoint / name).is_symlink():
                yield f"{shown(name)} is a link that the run did not make"
            elif would_be_loaded(name):
                yield f"{shown(name)} was not written by the run and would be loaded"
    folders = {path.name for path in checkpoint.iterdir() if path.is_dir()} - {name.split("/")[0] for name in known}
    yield from (f"{shown(name)} was not written by the run and would be loaded" for name in misleading_folders(folders))


def _visible_problems(checkpoint: Path, step: int) -> Iterator[str]:
    """Yield what is visibly wrong with a checkpoint that has no manifest: parts missing, cut, or not of its step."""
    names = all_files(checkpoint)
    settings = _read_object(checkpoint / identity.FILE)
    if settings is None and identity.FILE in names:
        yield f"{identity.FILE} is cut or damaged"
    if ADAPTER_CONFIG_NAME in names:
        yield f"{ADAPTER_CONFIG_NAME} was not written by the run and would be loaded"
    yield from (f"{part} is missing" for part in missing_parts(set(names), settings or {}, None))
    for name in sorted(_listed_shards(checkpoint) - set(names)):
        yield f"{shown(name)} is missing"
    if TRAINER_STATE_NAME in names and (found := _state_step(checkpoint)) != step:
        yield f"{TRAINER_STATE_NAME} is cut, or of step {found} instead of {step}"
    with ThreadPoolExecutor(THREADS) as pool:
        damaged = pool.map(lambda name: _is_cut(checkpoint / name), names)
        yield from (f"{shown(name)} is cut or damaged" for name, cut in zip(names, damaged, strict=True) if cut)


def _is_cut(path: Path) -> bool:
    """Return whether a file visibly is not what its name says; torch's files carry check sums, safetensors lengths."""
    try:
        if path.is_symlink() or not path.is_file():
            return True
        if path.suffix == ".json" and path.name != identity.FILE:  # which is told apart
            return _read_object(path) is None
        if path.suffix in (".pt", ".pth", ".bin"):
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is not None
        return path.suffix == ".safetensors" and not _is_long_enough(path)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
        return True


def _is_long_enough(path: Path) -> bool:
    """Return whether a safetensors file ends where its header says."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            return False
        header = json.loads(file.read(length))
    ends = [value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"]
    return 8 + length + max(ends, default=0) == path.stat().st_size


def _listed_shards(checkpoint: Path) -> set[str]:
    index = (_read_object(checkpoint / SAFE_WEIGHTS_INDEX_NAME) or {}).get("weight_map")
    return set(map(str, index.values())) if isinstance(index, dict) else set()


def _state_step(checkpoint: Path) -> int:
    """Return the step that the Trainer's state is of; -1 if it cannot be read."""
    try:
        return int(TrainerState(**_read_object(checkpoint / TRAINER_STATE_NAME) or {"": None}).global_step)
    except (ValueError, TypeError):
        return -1


def _read_object(path: Path) -> dict[str, Any] | None:
    """Return the values of a JSON file; None if it has none."""
    try:
        read = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def shown(name: str) -> str:
    """Return a file's name as it can be printed: a stranger's may steer the terminal."""
    return name if name.isprintable() else ascii(name)
