"""Verification of a checkpoint from its files alone, before any of them is loaded."""

import json
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from transformers import TrainerState
from transformers.trainer import OPTIMIZER_NAME, OPTIMIZER_NAME_BIN, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from aviot.backbones.checkpoints.adapter import PARTS_FILE
from aviot.backbones.checkpoints.lora import ADAPTER_FOLDER, ADAPTER_WEIGHTS
from aviot.request import ADAPTER_FILE
from aviot.training.identity import FAMILY, IDENTITY_FILE
from aviot.training.manifest import (
    MANIFEST_FILE,
    THREADS,
    CheckpointManifestError,
    FileDigest,
    Manifest,
    all_files,
    hash_files,
    read_manifest,
)
from aviot.training.saving import step_of

MAX_LISTED = 6  # problems that a message lists

_LOADED_SUFFIXES = frozenset(
    (".bin", ".distcp", ".gguf", ".jinja", ".json", ".model", ".pkl", ".pt", ".pth", ".py", ".safetensors", ".tiktoken")
)
_LOADED_NAMES = frozenset(("latest", "latest_universal", "merges.txt", "vocab.txt", ".metadata"))
_LOADED_FOLDERS = re.compile(r"(adapter|additional_chat_templates|global_step|optimizer|pytorch_model_fsdp)")


@dataclass(frozen=True)
class Inspection:
    """The result of verifying a checkpoint: its manifest (None: missing or unreadable), and the problems found."""

    checkpoint: Path
    step: int
    manifest: Manifest | None
    problems: tuple[str, ...]

    @property
    def is_intact(self) -> bool:
        """Return whether every file is as it was written."""
        return self.manifest is not None and not self.problems

    def summary(self) -> str:
        """Return the first problems as text."""
        more = len(self.problems) - MAX_LISTED
        return "; ".join(self.problems[:MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")


def inspect_checkpoint(checkpoint: Path) -> Inspection:
    """Compare every file of a checkpoint with its manifest; without a manifest, look for missing and damaged files."""
    step = step_of(checkpoint)
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return Inspection(checkpoint, step or 0, None, ("it is not a directory",))
    try:
        if not any(path.name == MANIFEST_FILE for path in checkpoint.iterdir()):
            known_step = _state_step(checkpoint) if step is None else step
            return Inspection(checkpoint, known_step, None, tuple(_visible_problems(checkpoint, known_step)))
        manifest = read_manifest(checkpoint)
        problems = tuple(_problems(checkpoint, manifest, step))
    except CheckpointManifestError as error:
        return Inspection(checkpoint, step or 0, None, (f"{MANIFEST_FILE}: {error}",))
    except OSError as error:
        return Inspection(checkpoint, step or 0, None, (f"it cannot be read ({error.strerror})",))
    return Inspection(checkpoint, manifest.step, manifest, problems)


def _problems(checkpoint: Path, manifest: Manifest, step: int | None) -> Iterator[str]:
    """Yield differences from the manifest; only files of the right name and size are read."""
    if step is not None and step != manifest.step:
        yield f"it was written at step {manifest.step} and has been renamed or copied"
    yield from _unlisted(checkpoint, set(manifest.files))
    to_hash = []
    for name, expected in manifest.files.items():
        if (problem := _check_size(checkpoint / name, expected)) is None:
            to_hash.append(name)
        else:
            yield f"{printable(name)} {problem}"
    settings = _read_object(checkpoint / IDENTITY_FILE) if IDENTITY_FILE in to_hash else None
    missing = missing_files(set(manifest.files), settings or {}, manifest.processes)
    yield from (f"{name} is missing" for name in missing if settings is not None)
    try:
        hashed = hash_files(checkpoint, to_hash)
    except OSError as error:
        yield f"{printable(Path(str(error.filename)).name)} cannot be read ({error.strerror})"
        return
    yield from (f"{printable(name)} was changed" for name, file in hashed if file != manifest.files[name])


def _check_size(path: Path, expected: FileDigest) -> str | None:
    """Return the problem with a file's kind or size, without reading it."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(status.st_mode):
        return "is a link" if stat.S_ISLNK(status.st_mode) else "is not a regular file"
    if status.st_size != expected.bytes:
        return f"has {status.st_size:,} bytes and was written with {expected.bytes:,}"
    return None


def _unlisted(checkpoint: Path, listed: set[str]) -> Iterator[str]:
    """Yield links, and files and folders that a library would load, that the manifest does not list."""
    for name in all_files(checkpoint):
        if name not in listed and name != MANIFEST_FILE:
            if (checkpoint / name).is_symlink():
                yield f"{printable(name)} is a link that the run did not create"
            elif would_be_loaded(name):
                yield f"{printable(name)} was not written by the run and would be loaded"
    folders = {path.name for path in checkpoint.iterdir() if path.is_dir()} - {name.split("/")[0] for name in listed}
    for name in loaded_folders(folders):
        yield f"{printable(name)} was not written by the run and would be loaded"


def missing_files(names: Set[str], settings: Mapping[str, Any], processes: int | None) -> list[str]:
    """Return the files that resuming needs and `names` lacks; the Trainer would silently do without them.

    `settings` is the content of the checkpoint's `training.json`, `processes` the number that wrote it (None: unknown).
    """

    def is_present(pattern: str) -> bool:
        return pattern in names or any(re.fullmatch(pattern, name) for name in names)

    return [" or ".join(choice) for choice in _needed(settings, processes) if not any(map(is_present, choice))]


def _needed(settings: Mapping[str, Any], processes: int | None) -> Iterator[tuple[str, ...]]:
    """Yield the needed files, each as alternatives; an alternative is a name or a pattern of names."""
    is_adapter = settings.get(FAMILY) is not None
    yield from ((name,) for name in (ADAPTER_FILE if is_adapter else CONFIG_NAME, TRAINER_STATE_NAME, IDENTITY_FILE))
    yield (PARTS_FILE,) if is_adapter else (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)
    parallelism = str(settings.get("parallelism", settings.get("engine")))  # "engine": written by 0.1
    if parallelism.startswith("zero"):  # its files may include the schedule
        yield ("latest",)
        for rank in range(processes or 1):
            yield (rf"global_step\d+/.*zero_pp_rank_{rank}_mp_rank_\d+_optim_states\.pt",)
    else:
        yield (SCHEDULER_NAME,)
        yield (OPTIMIZER_NAME_BIN, "optimizer_0/.metadata") if parallelism == "fsdp" else (OPTIMIZER_NAME,)
    if processes is None:
        yield ("rng_state.pth", r"rng_state_\d+\.pth")
    elif processes == 1:
        yield ("rng_state.pth",)
    else:
        yield from ((f"rng_state_{rank}.pth",) for rank in range(processes))
    if settings.get("lora.rank") is not None:
        yield (f"{ADAPTER_FOLDER}/{ADAPTER_WEIGHTS}",)


def would_be_loaded(name: str) -> bool:
    """Return whether transformers, accelerate, DeepSpeed, peft or torch may load a file of this name."""
    path = PurePosixPath(name)
    if path.name in _LOADED_NAMES:
        return True
    return not any(part.startswith(".") for part in path.parts) and path.suffix in _LOADED_SUFFIXES


def loaded_folders(names: Iterable[str]) -> list[str]:
    """Return those of a checkpoint's folders that a library may load because of their names."""
    return [name for name in names if _LOADED_FOLDERS.match(PurePosixPath(name).name)]


def _visible_problems(checkpoint: Path, step: int) -> Iterator[str]:
    """Yield problems of a checkpoint without a manifest: files missing, damaged, or from another step."""
    names = all_files(checkpoint)
    settings = _read_object(checkpoint / IDENTITY_FILE)
    if settings is None and IDENTITY_FILE in names:
        yield f"{IDENTITY_FILE} is truncated or damaged"
    if ADAPTER_CONFIG_NAME in names:
        yield f"{ADAPTER_CONFIG_NAME} was not written by the run and would be loaded"
    yield from (f"{name} is missing" for name in missing_files(set(names), settings or {}, None))
    for name in sorted(_listed_shards(checkpoint) - set(names)):
        yield f"{printable(name)} is missing"
    if TRAINER_STATE_NAME in names and (state_step := _state_step(checkpoint)) != step:
        yield f"{TRAINER_STATE_NAME} is truncated, or from step {state_step} instead of {step}"
    with ThreadPoolExecutor(THREADS) as pool:
        damaged = pool.map(lambda name: _is_damaged(checkpoint / name), names)
        for name, is_damaged in zip(names, damaged, strict=True):
            if is_damaged:
                yield f"{printable(name)} is truncated or damaged"


def _is_damaged(path: Path) -> bool:
    """Return whether a file is visibly damaged: torch's files have checksums, safetensors files have lengths."""
    try:
        if path.is_symlink() or not path.is_file():
            return True
        if path.suffix == ".json" and path.name != IDENTITY_FILE:  # which has a message of its own
            return _read_object(path) is None
        if path.suffix in (".pt", ".pth", ".bin"):
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is not None
        return path.suffix == ".safetensors" and not _has_full_length(path)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
        return True


def _has_full_length(path: Path) -> bool:
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
    """Return the step of the Trainer's state; -1 if it cannot be read."""
    try:
        return int(TrainerState(**_read_object(checkpoint / TRAINER_STATE_NAME) or {"": None}).global_step)
    except (ValueError, TypeError):
        return -1


def _read_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def printable(name: str) -> str:
    """Return a file name without control characters, which could manipulate the terminal."""
    return name if name.isprintable() else ascii(name)
