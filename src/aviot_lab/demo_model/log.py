"""The log of a training run, for people and for the model card."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from aviot.utils.journal import Journal, Row, read_rows
from aviot.utils.values import as_whole
from aviot_lab.demo_model.curriculum import Phase

LOG = "log.jsonl"
CURVES = "training.jsonl"  # its copy beside exported weights
REPORT = 20  # steps between lines


class Log:
    """One JSON object per line: means over the steps since the last line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG
        self.sums: dict[str, list[Tensor]] = {}
        self.since = self.last = time.monotonic()
        self.waiting = self.busy = 0.0

    def waited(self) -> None:
        """Count the time since the last step as waiting for a batch."""
        now = time.monotonic()
        self.waiting += now - self.last
        self.last = now

    def add(self, step: int, phase: Phase, values: dict[str, Tensor]) -> None:
        """Add a step's values; nothing is copied from the device until a line is due."""
        for name, value in values.items():
            self.sums.setdefault(name, []).append(value.detach())
        now = time.monotonic()
        self.last, self.busy = now, self.busy + now - self.last
        if step % REPORT:
            return
        means = {name: round(float(torch.stack(values).mean()), 4) for name, values in self.sums.items()}
        now = time.monotonic()
        spent = {"step_ms": now - self.since, "wait_ms": self.waiting, "host_ms": self.busy}
        times = {name: round(1000 * value / REPORT, 1) for name, value in spent.items()}
        if bad := [name for name, value in means.items() if not math.isfinite(value)]:
            raise ValueError(f"{', '.join(bad)} not finite by step {step}; the state before this piece is untouched")
        self.write({"step": step, "task": phase.task, **means, **times})
        self.sums, self.since, self.last, self.waiting, self.busy = {}, now, now, 0.0, 0.0

    def write(self, line: Row) -> None:
        """Append a line, and print it."""
        print(json.dumps(line), flush=True)
        with Journal(self.path) as journal:
            journal.add(line)


class TrainingSummary(NamedTuple):
    """Compressor and steps of the run that trained a checkpoint."""

    compressor: str  # several are joined by "and"
    steps: int


def training_summary(folder: Path) -> TrainingSummary | None:
    """Return what the log beside a checkpoint's weights says; None without a log."""
    done = finished_pieces(read_rows(folder / CURVES))
    if not done:
        return None
    return TrainingSummary(" and ".join(dict.fromkeys(began["compressor"] for began, _ in done)), done[-1][1]["ended"])


def finished_pieces(lines: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the first and the last line of every finished piece of a run; a piece that was killed has no last line."""
    found, begun = [], None
    for line in lines:
        if "began" in line:
            begun = line if isinstance(line.get("compressor"), str) else None
        elif as_whole(line.get("ended")) is not None and begun is not None:
            found.append((begun, line))
    return found
