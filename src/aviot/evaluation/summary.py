"""What a run found: scores with their intervals, and everything that went wrong, counted and listed."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aviot.evaluation.intervals import Interval, bootstrap, wilson
from aviot.evaluation.rows import has_failed
from aviot.journal import Row

MULTIPLE_CHOICE, EXACT_MATCH = "multiple choice", "exact match"
JUDGED_CORRECT, JUDGED_SCORE = "judge: correct", "judge: score, 0 to 5"


@dataclass(frozen=True)
class Measure:
    """One figure of one setting over `counted` items; `failed` of them count as wrong, `unjudged` others not at all."""

    setting: str
    name: str
    value: float | None
    interval: Interval | None
    counted: int
    failed: int
    unjudged: int = 0


@dataclass(frozen=True)
class Problem:
    """An item that something is wrong with, and for which settings."""

    id: str
    video: str
    reason: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """All figures of a run, and its problems in full."""

    items: int
    rows: int
    measures: tuple[Measure, ...]
    read_as: dict[str, dict[str, int]]  # of each setting: how replies to multiple choice were read
    failed: tuple[Problem, ...]
    without_answer: tuple[Problem, ...]
    unjudged: tuple[Problem, ...]
    results_sha256: str
    videos: str  # the folder that relative videos count from
    notes: tuple[str, ...] = ()


def summarise(rows: Sequence[Row], *, seed: int, digest: str, videos: str, notes: Iterable[str] = ()) -> Summary:
    """The summary of a whole run's rows."""
    by_setting: dict[str, list[Row]] = {}
    for row in rows:
        by_setting.setdefault(row["setting"], []).append(row)
    return Summary(
        items=len({row["item"] for row in rows}),
        rows=len(rows),
        measures=tuple(measure for mine in by_setting.values() for measure in _measures(mine, seed)),
        read_as={
            name: dict(Counter(row["how"] for row in mine if row["kind"] == "choice" and "how" in row))
            for name, mine in by_setting.items()
        },
        failed=_problems(rows, lambda row: row["reason"] if has_failed(row) else None),
        without_answer=_problems(rows, lambda row: row.get("unscored")),
        unjudged=_problems(rows, lambda row: row.get("judge", {}).get("unjudged")),
        results_sha256=digest,
        videos=videos,
        notes=tuple(notes),
    )


def _measures(rows: Sequence[Row], seed: int) -> Iterable[Measure]:
    """The figures of one setting; failed rows are in them, as wrong."""
    scored = [row for row in rows if row["correct"] is not None]
    for kind, name in (("choice", MULTIPLE_CHOICE), ("open", EXACT_MATCH)):
        mine = [row for row in scored if row["kind"] == kind]
        if mine:
            yield _share(mine[0]["setting"], name, [row["correct"] for row in mine], _failures(mine))
    opened = [row for row in scored if row["kind"] == "open"]
    if any("judge" in row for row in opened):
        yield from _judged(opened, seed)


def _judged(rows: Sequence[Row], seed: int) -> Iterable[Measure]:
    known = [row for row in rows if has_failed(row) or "correct" in row.get("judge", {})]
    setting, failed, unjudged = rows[0]["setting"], _failures(known), len(rows) - len(known)
    verdicts = [row.get("judge", {"correct": False, "score": 0.0}) for row in known]
    yield _share(setting, JUDGED_CORRECT, [verdict["correct"] for verdict in verdicts], failed, unjudged)
    scores = [float(verdict["score"]) for verdict in verdicts]
    mean = sum(scores) / len(scores) if scores else None
    interval = bootstrap(scores, [row["video"] for row in known], seed)
    yield Measure(setting, JUDGED_SCORE, mean, interval, len(scores), failed, unjudged)


def _share(setting: str, name: str, right: Sequence[bool], failed: int, unjudged: int = 0) -> Measure:
    value = sum(right) / len(right) if right else None
    return Measure(setting, name, value, wilson(sum(right), len(right)), len(right), failed, unjudged)


def _failures(rows: Sequence[Row]) -> int:
    return sum(map(has_failed, rows))


def _problems(rows: Iterable[Row], reason: Callable[[Row], str | None]) -> tuple[Problem, ...]:
    """Items with a reason, once for each, with the settings it holds for."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if (why := reason(row)) is not None:
            found.setdefault((row["id"], row["video"], why), []).append(row["setting"])
    return tuple(Problem(*key, tuple(settings)) for key, settings in found.items())
