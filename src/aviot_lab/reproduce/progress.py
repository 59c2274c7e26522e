"""Progress of a reproduction on stderr: a bar in a terminal, occasional lines elsewhere."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from aviot.utils.printing import SafeConsole, SafeProgress

LOADING = "loading the model"
SECONDS_BETWEEN_LINES = 30.0
BAR = 10  # columns; phase, bar and times fit in 80


class BatchCost(NamedTuple):
    """The expected cost of one batch of questions, comparable among batches of the same kind."""

    kind: str
    cost: float


class Pace:
    """Seconds per unit of cost so far, for each kind of batch, and what they predict for the rest."""

    def __init__(self, batches: Sequence[BatchCost]) -> None:
        self.batches, self.done = tuple(batches), 0
        self._seconds: dict[str, float] = {}
        self._costs: dict[str, float] = {}

    def add(self, seconds: float) -> None:
        """Count the next batch as finished."""
        kind, cost = self.batches[self.done]
        self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
        self._costs[kind] = self._costs.get(kind, 0.0) + cost
        self.done += 1

    def seconds_left(self, spent: float = 0.0, share: float = 0.0) -> float | None:
        """Predict the seconds left, `spent` seconds and a `share` into the present batch; None without a basis.

        A kind of which nothing was measured yet is predicted from the others.
        """
        seconds, costs = dict(self._seconds), dict(self._costs)
        left = list(self.batches[self.done :])
        if left and share > 0:
            kind, cost = left[0]
            seconds[kind] = seconds.get(kind, 0.0) + spent
            costs[kind] = costs.get(kind, 0.0) + share * cost
            left[0] = BatchCost(kind, (1 - share) * cost)
        if not left:
            return 0.0
        if not sum(costs.values()):
            return None
        overall = sum(seconds.values()) / sum(costs.values())
        return sum(cost * (seconds[kind] / costs[kind] if kind in costs else overall) for kind, cost in left)


class RunProgress:
    """Phases of a run, batches and rows done, and the time left.

    Entered as a context in a terminal, it draws a bar; otherwise it prints plain lines, the first at once.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = SafeConsole(stderr=True) if console is None else console
        self._clock = clock
        self._bar: SafeProgress | None = None
        self._began = self._batch_began = clock()
        self._printed: float | None = None
        self._pace = Pace(())
        self._phase = self._score = ""

    def __enter__(self) -> "RunProgress":
        if self._console.is_interactive and self._console.file.isatty():  # a pipe may force colours, and has no bar
            rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(BAR),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                TextColumn("{task.fields[score]}", markup=False, table_column=rest),
            )
            self._bar = SafeProgress(*columns, console=self._console, expand=True, transient=True)
            self._task = self._bar.add_task(LOADING, total=None, left="", score="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def phase(self, name: str) -> None:
        """Show what is done now, in a line of its own where there is no bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=name, left="")
        elif name != self._phase:
            self._print(name)
        self._phase = name

    def begin(self, batches: Sequence[BatchCost], finished: Sequence[float]) -> None:
        """Show how much there is to do; `finished` are the seconds of the batches that an earlier run finished."""
        self._pace = Pace(batches)
        for seconds in finished:
            self._pace.add(seconds)
        if finished:
            self._print(f"resuming: {len(finished)} of {len(batches)} batches are done")
        self._printed = None  # the first batch gets a line at once
        if self._bar is not None:
            self._bar.update(self._task, total=len(batches), completed=len(finished))

    def drawing(self) -> None:
        """Show that the next batch's videos are drawn and encoded."""
        self._batch_began = self._clock()
        self._show(f"drawing batch {self._place()}", 0.0)

    def answering(self, row: int, rows: int) -> None:
        """Show that the batch's questions are answered in the `row`-th of so many ways, counted from 1."""
        self._show(f"batch {self._place()}: answering row {row} of {rows}", (row - 1) / rows)

    def finish_batch(self, seconds: float, score: object) -> None:
        """Count the batch, and show the accuracy so far."""
        place = self._place()
        self._pace.add(seconds)
        self._score = str(score)
        self._batch_began = self._clock()
        self._show(f"batch {place} done", 0.0)

    def _place(self) -> str:
        return f"{self._pace.done + 1} of {len(self._pace.batches)}"

    def _show(self, text: str, share: float) -> None:
        """Update the bar, or print a line if the last one is old enough."""
        now = self._clock()
        if self._bar is None and self._printed is not None and now - self._printed < SECONDS_BETWEEN_LINES:
            return
        left = self._pace.seconds_left(now - self._batch_began, share)
        remaining = "" if left is None else f"about {duration(left)} left"
        if self._bar is not None:
            done = self._pace.done + share
            self._bar.update(self._task, description=text, completed=done, left=remaining, score=self._score)
        else:
            times = ", ".join(filter(None, (f"{duration(now - self._began)} so far", remaining)))
            self._print("; ".join(filter(None, (text, times, self._score))))

    def _print(self, line: str) -> None:
        self._printed = self._clock()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Format seconds as "40 s", "3 min 20 s" or "1 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
