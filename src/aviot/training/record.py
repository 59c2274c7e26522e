"""What a run was: its configuration, versions, commit and data, in its folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from aviot.machine import command_line, commit, machine, versions
from aviot.training.config import TrainingConfig
from aviot.training.reading import write_yaml

CONFIG = "config.yaml"
RUN = "run.json"


def record_run(
    folder: Path, config: TrainingConfig, identity: Mapping[str, Any], *, examples: int, processes: int
) -> None:
    """Write the configuration as it was understood, and one entry a start of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    write_yaml(folder / CONFIG, config.to_dict())
    path = folder / RUN
    starts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    entry = {
        "command": command_line(),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(device),
        "processes": processes,
        "examples": examples,
        "data_fingerprint": identity["data fingerprint"],
        "engine": identity["engine"],
    }
    path.write_text(json.dumps([*starts, entry], indent=2) + "\n", encoding="utf-8")
