"""The identity of a run: the list of its starts (run.json), and the settings that resuming must not change."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from uuid import uuid4

import torch

from aviot.backbones.checkpoints.shards import read_shards
from aviot.request import checkpoint_folder
from aviot.training.config import TrainingConfig
from aviot.training.config_files import Parallelism, write_yaml
from aviot.training.manifest import MAX_MANIFEST_BYTES, RunReference, digest, hash_files
from aviot.utils.files import write_durably
from aviot.utils.machine import command_line, commit, machine, versions

CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
IDENTITY_FILE = "training.json"  # in every checkpoint
MODEL = "model sha256"
FAMILY = "family"  # of an adapter's base; whole models do not have it

# Settings that may change when a run is resumed: they affect paths, speed and output, not the trained weights.
_FREE = (
    "cache",
    "data.absolute_paths",
    "data.index_folder",
    "data.max_failed_share",
    "data.min_failures",
    "data.records",  # compared by fingerprint
    "data.video_root",
    "parallelism",  # compared by name
    "gradient_checkpointing",
    "held_out",  # does not affect weights or random states
    "loader",
    "logging",
    "optimization.micro_batch",
    "output",
    "saving",
)

Starts = list[dict[str, Any]]
"""One entry for each time that a run was started or resumed."""


class ResumeError(ValueError):
    """A run that cannot be resumed with this configuration; the message gives the reason."""


@dataclass(frozen=True)
class StartPoint:
    """A checkpoint to start from (None: the configured model), its step, and the run's id (None: a new run).

    `processes` is the number of processes that wrote the checkpoint (None: unknown). `record_is_lost` is true if
    `run.json` is missing or was changed.
    """

    checkpoint: Path | None = None
    step: int = 0
    run: str | None = None
    processes: int | None = None
    record_is_lost: bool = False


def read_starts(run: Path) -> Starts:
    """Read the starts of a run; an empty list if there is no file, ValueError if it was truncated or changed."""
    path = run / RUN_FILE
    if not path.is_file():
        return []
    try:
        starts = json.loads(path.read_text(encoding="utf-8") if path.stat().st_size <= MAX_MANIFEST_BYTES else "")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: it was truncated or changed") from error
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise ValueError(f"{path} is not the list of a run's starts: it was changed")
    return starts


def run_id(starts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the run's id from its last start; None if there is none."""
    last = starts[-1].get("run") if starts else None
    return last if isinstance(last, str) else None


def is_recorded(run: RunReference, starts: Starts) -> bool:
    """Return whether the list of starts begins with those that a checkpoint refers to."""
    return len(starts) >= run.starts and digest(starts[: run.starts]) == run.sha256


def record_start(
    run: Path,
    config: TrainingConfig,
    identity: Mapping[str, Any],
    start: StartPoint,
    *,
    examples: int,
    processes: int,
) -> RunReference:
    """Write the complete configuration and an entry for this start; returns the reference that checkpoints store."""
    run.mkdir(parents=True, exist_ok=True)
    write_yaml(run / CONFIG_FILE, config.to_dict())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    entry = {
        "run": uuid4().hex if start.run is None else start.run,
        "checkpoint": None if start.checkpoint is None else str(start.checkpoint),
        "command": command_line(),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(device),
        "processes": processes,
        "examples": examples,
        "data_fingerprint": identity["data fingerprint"],
        "parallelism": identity["parallelism"],
    }
    starts = [*read_starts(run), json.loads(json.dumps(entry))]
    write_durably(run / RUN_FILE, json.dumps(starts, indent=2).encode() + b"\n")
    return RunReference(starts[-1]["run"], len(starts), digest(starts))


def whole_model_digest(model: str) -> str:
    """Hash the files of a checkpoint's weights."""
    paths = read_shards(checkpoint_folder(model)).paths
    return digest([file for path in paths for _, file in hash_files(path.parent, [path.name])])


def run_identity(
    config: TrainingConfig, parallelism: Parallelism, fingerprint: str, model_digest: str | None = None
) -> dict[str, Any]:
    """Return every setting that affects the trained weights, by dotted name; `model_digest` is the base model's."""
    settings = dict(_flatten(config.to_dict(), ""))
    fixed = {name: value for name, value in settings.items() if not _is_free(name)}
    if config.lora is None:
        fixed.pop("model")  # a checkpoint holds all weights; with adapters the decoder's come from the base model
    if model_digest is not None:
        fixed[MODEL] = model_digest
    return fixed | {"parallelism": parallelism.name, "data fingerprint": fingerprint}


def adapter_identity(identity: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Return the identity of a run that trains an adapter: its base is known by its weights, wherever it is."""
    return {name: value for name, value in identity.items() if name != "model"} | {FAMILY: family}


def write_identity(checkpoint: Path, values: Mapping[str, Any]) -> None:
    """Write the identity into a checkpoint."""
    write_durably(checkpoint / IDENTITY_FILE, json.dumps(dict(values), indent=2).encode() + b"\n")


def check_identity(checkpoint: Path, values: Mapping[str, Any]) -> None:
    """Raise ResumeError if a checkpoint's identity differs from the given one."""
    try:
        stored = dict(json.loads((checkpoint / IDENTITY_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ResumeError(
            f"{checkpoint} has no readable {IDENTITY_FILE} ({error}); it is not a checkpoint of a run"
        ) from error
    current = json.loads(json.dumps(dict(values)))
    stored.setdefault(MODEL, current.get(MODEL))  # earlier versions did not write it
    if "engine" in stored:  # its name in 0.1
        stored["parallelism"] = stored.pop("engine")
    changed = [name for name in sorted({*stored, *current}) if stored.get(name) != current.get(name)]
    if changed:
        listing = "; ".join(f"{name} was {stored.get(name)!r}, is {current.get(name)!r}" for name in changed)
        raise ResumeError(
            f"the run in {checkpoint.parent} cannot be resumed with other settings: {listing}. Restore them, or start "
            "a new run in another output"
        )


@contextmanager
def naming_load_failures(checkpoint: str | Path | None) -> Iterator[None]:
    """Raise errors while a checkpoint is loaded as a ResumeError that names it."""
    try:
        yield
    except (OSError, EOFError, KeyError, RuntimeError, TypeError, ValueError, UnpicklingError) as error:
        if checkpoint is None or isinstance(error, torch.OutOfMemoryError | ResumeError):
            raise
        reason = str(error).partition("\n")[0]
        raise ResumeError(
            f"{checkpoint} could not be loaded ({type(error).__name__}: {reason}); resume from another checkpoint"
        ) from error


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_free(name: str) -> bool:
    return any(name == free or name.startswith(f"{free}.") for free in _FREE)
