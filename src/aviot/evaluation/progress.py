"""Progress display of a run: rows done, time left, and the running score."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from aviot.utils.printing import SafeConsole, SafeProgress

MAX_SHOWN = 3
"""Settings whose score is shown next to the progress bar."""

BAR_WIDTH = 20  # columns

SECONDS_BETWEEN_LINES = 30.0


class RunningScore:
    """Counts of correct and scored rows per setting."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row, unless it has no score."""
        if row.get("correct") is not None:
            counts = self._counts.setdefault(row["setting"], [0, 0])
            counts[0] += bool(row["correct"])
            counts[1] += 1

    def __str__(self) -> str:
        parts = []
        for name, (right, scored) in list(self._counts.items())[:MAX_SHOWN]:
            parts.append(f"{name} {right / scored:.1%} of {scored}")
        left_out = len(self._counts) - MAX_SHOWN
        return ", ".join(parts) + (f", {left_out} more" if left_out > 0 else "")


def bar(label: str, console: SafeConsole) -> SafeProgress:
    """Return a progress bar with counts and times; the status text gets the rest of the line and is truncated to it."""
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    counts = (BarColumn(BAR_WIDTH), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    status = TextColumn("{task.description}", markup=False, table_column=rest)
    return SafeProgress(TextColumn(label), *counts, status, console=console, expand=True)


class Display:
    """A progress bar on a terminal, occasional lines elsewhere, and nothing if `silent`."""

    def __init__(self, label: str, total: int, done: int, *, silent: bool) -> None:
        self._label, self._total, self._done = label, total, done
        self._silent = silent
        self._console = SafeConsole(stderr=True)
        self._bar: SafeProgress | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> "Display":
        if not self._silent and sys.stderr.isatty() and self._done < self._total:
            self._bar = bar(self._label, self._console)
            self._task = self._bar.add_task("", total=self._total, completed=self._done)
            self._bar.start()
        return self

    def advance(self, status: object) -> None:
        """Count one more row and show a status text."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=str(status))
        elif not self._silent and time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            text = f"{self._label}: {self._done}/{self._total}: {status}"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
