"""What makes a run the same run: settings that may not change when it is resumed."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aviot.training.config import TrainingConfig
from aviot.training.engine import Engine

FILE = "training.json"

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


def identity(config: TrainingConfig, engine: Engine, fingerprint: str) -> dict[str, Any]:
    """Every setting that decides what is learnt, under dotted names."""
    settings = dict(_flat(config.to_dict(), ""))
    kept = {name: value for name, value in settings.items() if not _is_free(name)}
    if config.lora is None:
        kept.pop("model")  # a checkpoint holds all weights; with adapters those of the decoder are the start's
    return kept | {"engine": engine.name, "data fingerprint": fingerprint}


def write_identity(folder: Path, values: Mapping[str, Any]) -> None:
    """Beside a checkpoint's weights."""
    (folder / FILE).write_text(json.dumps(dict(values), indent=2) + "\n", encoding="utf-8")


def check_identity(checkpoint: Path, values: Mapping[str, Any]) -> None:
    """Refuse to go on from a checkpoint of another run."""
    try:
        stored = json.loads((checkpoint / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResumeError(f"{checkpoint} has no readable {FILE} ({error}); it is no checkpoint of a run") from error
    current = json.loads(json.dumps(dict(values)))
    changed = [name for name in sorted({*stored, *current}) if stored.get(name) != current.get(name)]
    if changed:
        listing = "; ".join(f"{name} was {stored.get(name)!r}, is {current.get(name)!r}" for name in changed)
        raise ResumeError(
            f"the run in {checkpoint.parent} would not go on as it began: {listing}. Put them back, or begin a run of "
            "its own in another output"
        )


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_free(name: str) -> bool:
    return any(name == free or name.startswith(f"{free}.") for free in _FREE)
