"""What a person sees of a run: rows done, time left, and the score so far."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from aviot.utils.printing import SafeConsole, SafeProgress

SHOWN = 3
"""Settings whose score fits beside a bar."""

BAR = 20  # columns

SECONDS_BETWEEN_LINES = 30.0


class RunningScore:
    """Right and scored rows of each setting so far."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row; one that cannot be scored counts nothing."""
        if row.get("correct") is not None:
            counts = self._counts.setdefault(row["setting"], [0, 0])
            counts[0] += bool(row["correct"])
            counts[1] += 1

    def __str__(self) -> str:
        parts = []
        for name, (right, scored) in list(self._counts.items())[:SHOWN]:
            parts.append(f"{name} {right / scored:.1%} of {scored}")
        left_out = len(self._counts) - SHOWN
        return ", ".join(parts) + (f", {left_out} more" if left_out > 0 else "")


def bar(what: str, console: SafeConsole) -> SafeProgress:
    """Rows done and time left; what is said of them takes the rest of the line, and gives way where that is short."""
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    counts = (BarColumn(BAR), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    told = TextColumn("{task.description}", markup=False, table_column=rest)
    return SafeProgress(TextColumn(what), *counts, told, console=console, expand=True)


class Display:
    """A bar where there is a terminal, lines now and then where there is none, nothing in all but the first process."""

    def __init__(self, what: str, total: int, done: int, *, silent: bool) -> None:
        self._what, self._total, self._done = what, total, done
        self._silent = silent
        self._console = SafeConsole(stderr=True)
        self._bar: SafeProgress | None = None
        self._said = time.monotonic()

    def __enter__(self) -> "Display":
        if not self._silent and sys.stderr.isatty() and self._done < self._total:
            self._bar = bar(self._what, self._console)
            self._task = self._bar.add_task("", total=self._total, completed=self._done)
            self._bar.start()
        return self

    def advance(self, told: object) -> None:
        """One row more, and what there is to say of all so far."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=str(told))
        elif not self._silent and time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            text = f"{self._what}: {self._done}/{self._total}: {told}"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
