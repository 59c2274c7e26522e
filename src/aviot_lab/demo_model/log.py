"""What a run writes about itself, for people and for the model's card."""

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
CURVES = "training.jsonl"  # the same, beside the weights that came of it
REPORT = 20  # steps between lines


class Log:
    """One JSON object a line: means over the steps since the last."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG
        self.sums: dict[str, list[Tensor]] = {}
        self.since = self.last = time.monotonic()
        self.waiting = self.busy = 0.0

    def waited(self) -> None:
        """The next lesson is there."""
        now = time.monotonic()
        self.waiting += now - self.last
        self.last = now

    def add(self, step: int, phase: Phase, found: dict[str, Tensor]) -> None:
        """Count a step that was taken; nothing is read off the device until a line is due."""
        for name, value in found.items():
            self.sums.setdefault(name, []).append(value.detach())
        now = time.monotonic()
        self.last, self.busy = now, self.busy + now - self.last
        if step % REPORT:
            return
        means = {name: round(float(torch.stack(values).mean()), 4) for name, values in self.sums.items()}
        now = time.monotonic()
        spent = {"step_ms": now - self.since, "wait_ms": self.waiting, "host_ms": self.busy}
        times = {name: round(1000 * value / REPORT, 1) for name, value in spent.items()}
        if lost := [name for name, value in means.items() if not math.isfinite(value)]:
            raise ValueError(f"{', '.join(lost)} not finite by step {step}; the state before this piece is untouched")
        self.write({"step": step, "task": phase.task, **means, **times})
        self.sums, self.since, self.last, self.waiting, self.busy = {}, now, now, 0.0, 0.0

    def write(self, line: Row) -> None:
        """Append a line, and show it."""
        print(json.dumps(line), flush=True)
        with Journal(self.path) as journal:
            journal.add(line)


class Trained(NamedTuple):
    """How the weights of a folder came about."""

    compressor: str  # that they learnt with; more than one by "and"
    steps: int


def how_trained(folder: Path) -> Trained | None:
    """By the log beside a folder's weights; None if there is none."""
    done = finished_pieces(read_rows(folder / CURVES))
    if not done:
        return None
    return Trained(" and ".join(dict.fromkeys(began["compressor"] for began, _ in done)), done[-1][1]["ended"])


def finished_pieces(lines: Sequence[Row]) -> list[tuple[Row, Row]]:
    """How each piece of a run began and ended.

    One that was killed has no end, and another began where it had begun.
    """
    found, begun = [], None
    for line in lines:
        if "began" in line:
            begun = line if isinstance(line.get("compressor"), str) else None
        elif as_whole(line.get("ended")) is not None and begun is not None:
            found.append((begun, line))
    return found
