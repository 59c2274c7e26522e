"""What a run was: its configuration, versions, commit and data, in its folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from aviot.files import write_durably
from aviot.machine import command_line, commit, machine, versions
from aviot.training.config import TrainingConfig
from aviot.training.manifest import LARGEST, RunRecord, digest
from aviot.training.reading import write_yaml

CONFIG = "config.yaml"
RUN = "run.json"

Starts = list[dict[str, Any]]
"""One entry for each time that a run was started."""


@dataclass(frozen=True)
class Start:
    """Where a run begins or goes on: a checkpoint (None: the beginning), its step, and the run's id (None: new).

    `processes` wrote the checkpoint (None: not known). `record_is_lost`: `run.json` is missing or was changed.
    """

    checkpoint: Path | None = None
    step: int = 0
    run: str | None = None
    processes: int | None = None
    record_is_lost: bool = False


def read_starts(folder: Path) -> Starts:
    """Read the starts of a run; none where it has not begun, ValueError where its record was cut or changed."""
    path = folder / RUN
    if not path.is_file():
        return []
    try:
        starts = json.loads(path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else "")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: it was cut or changed") from error
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise ValueError(f"{path} is not the list of a run's starts: it was changed")
    return starts


def run_id(starts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the id of the run that was started last; None before there were any."""
    found = starts[-1].get("run") if starts else None
    return found if isinstance(found, str) else None


def is_recorded(run: RunRecord, starts: Starts) -> bool:
    """Return whether the record begins with the starts that a checkpoint of the run knew of."""
    return len(starts) >= run.starts and digest(starts[: run.starts]) == run.sha256


def record_run(
    folder: Path,
    config: TrainingConfig,
    identity: Mapping[str, Any],
    start: Start,
    *,
    examples: int,
    processes: int,
) -> RunRecord:
    """Write the configuration as it was understood, and one entry for this start; returns what checkpoints keep."""
    folder.mkdir(parents=True, exist_ok=True)
    write_yaml(folder / CONFIG, config.to_dict())
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
        "engine": identity["engine"],
    }
    starts = [*read_starts(folder), json.loads(json.dumps(entry))]
    write_durably(folder / RUN, json.dumps(starts, indent=2).encode() + b"\n")
    return RunRecord(starts[-1]["run"], len(starts), digest(starts))
