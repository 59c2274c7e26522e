"""What makes a run the same run: settings that may not change when it is resumed."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from aviot.backbones.checkpoints.shards import read_shards
from aviot.request import checkpoint_folder
from aviot.training.config import TrainingConfig
from aviot.training.engine import Engine
from aviot.training.manifest import digest, hash_files
from aviot.utils.files import write_durably

FILE = "training.json"
MODEL = "model sha256"

# They change where things are, how fast they go and what is shown, and not what is learnt.
_FREE = (
    "cache",
    "data.absolute_paths",
    "data.index_folder",
    "data.max_failed_share",
    "data.min_failures",
    "data.records",  # the fingerprint tells what is in it
    "data.video_root",
    "engine",  # by its name, below
    "gradient_checkpointing",
    "held_out",  # measured without a trace in weights and random states
    "loader",
    "logging",
    "optimization.micro_batch",
    "output",
    "saving",
)


class ResumeError(ValueError):
    """A run that cannot be resumed with this configuration, and why."""


def start_digest(config: TrainingConfig) -> str | None:
    """Hash the weights that a run goes back to whenever it is resumed: with adapters, the decoder's own."""
    if config.lora is None:
        return None
    paths = read_shards(checkpoint_folder(config.model)).paths
    return digest([found for path in paths for _, found in hash_files(path.parent, [path.name])])


def identity(
    config: TrainingConfig, engine: Engine, fingerprint: str, model_digest: str | None = None
) -> dict[str, Any]:
    """Every setting that decides what is learnt, under dotted names; `model_digest` is that of the starting point."""
    settings = dict(_flat(config.to_dict(), ""))
    kept = {name: value for name, value in settings.items() if not _is_free(name)}
    if config.lora is None:
        kept.pop("model")  # a checkpoint holds all weights; with adapters those of the decoder are the start's
    if model_digest is not None:
        kept[MODEL] = model_digest
    return kept | {"engine": engine.name, "data fingerprint": fingerprint}


def write_identity(folder: Path, values: Mapping[str, Any]) -> None:
    """Beside a checkpoint's weights."""
    write_durably(folder / FILE, json.dumps(dict(values), indent=2).encode() + b"\n")


def check_identity(checkpoint: Path, values: Mapping[str, Any]) -> None:
    """Refuse to go on from a checkpoint of another run."""
    try:
        stored = dict(json.loads((checkpoint / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ResumeError(f"{checkpoint} has no readable {FILE} ({error}); it is no checkpoint of a run") from error
    current = json.loads(json.dumps(dict(values)))
    stored.setdefault(MODEL, current.get(MODEL))  # earlier versions did not write it
    changed = [name for name in sorted({*stored, *current}) if stored.get(name) != current.get(name)]
    if changed:
        listing = "; ".join(f"{name} was {stored.get(name)!r}, is {current.get(name)!r}" for name in changed)
        raise ResumeError(
            f"the run in {checkpoint.parent} would not go on as it began: {listing}. Put them back, or begin a run of "
            "its own in another output"
        )


@contextmanager
def naming_unreadable(checkpoint: str | Path | None) -> Iterator[None]:
    """Raise what goes wrong while a checkpoint is loaded as a sentence that names it."""
    try:
        yield
    except (OSError, EOFError, KeyError, RuntimeError, TypeError, ValueError, UnpicklingError) as error:
        if checkpoint is None or isinstance(error, torch.OutOfMemoryError | ResumeError):
            raise
        why = str(error).partition("\n")[0]
        raise ResumeError(
            f"{checkpoint} could not be loaded ({type(error).__name__}: {why}); go on from another checkpoint"
        ) from error


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_free(name: str) -> bool:
    return any(name == free or name.startswith(f"{free}.") for free in _FREE)
