"""A summary for people, problems first, and for machines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from aviot.evaluation.intervals import Interval
from aviot.evaluation.measures import JUDGED_SCORE, Difference, Measure
from aviot.evaluation.summary import Problem, Summary
from aviot.utils.printing import one_line

LISTED = 10
"""Problems of one kind that are named at a terminal; the summary's files have all."""

NOTHING = "none"
WITHOUT_SCORES = "No item has an answer: there are predictions, and no score."


@dataclass(frozen=True)
class Table:
    """Cells under headings; the first `labels` columns are text, the others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def as_plain(summary: Summary) -> dict[str, Any]:
    """Return the whole summary as JSON knows it."""
    return asdict(summary)


def print_summary(summary: Summary, console: Console) -> None:
    """Print what went wrong, then the figures; nothing is cut, however narrow the terminal or the pipe."""
    for line in [*problem_lines(summary, LISTED), *_figures(summary)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def problem_lines(summary: Summary, listed: int) -> Iterator[str]:
    """Return notes and problems in sentences, at most so many of a kind."""
    yield from (f"note: {one_line(note)}" for note in summary.notes)
    what = f"could not be asked and count as wrong (videos in {summary.videos})"
    yield from _problems(summary.failed, summary, what, listed)
    yield from _problems(summary.without_answer, summary, "have no usable answer and are not scored", listed)
    yield from _problems(summary.unjudged, summary, "were not judged and are not in the judge's figures", listed)
    if summary.damaged:
        yield f"{len(summary.damaged)} of {summary.video_count} videos are damaged; what can be read of them was asked:"
        yield from _first([f"{one_line(each.video)}: {one_line(each.damage)}" for each in summary.damaged], listed)


def summary_tables(summary: Summary) -> list[Table]:
    """Return every figure: scores by measure, differences, scores by column, visual tokens."""
    names = list(dict.fromkeys(measure.name for measure in summary.measures))
    tables = []
    for name in names:
        tables.append(_scores(name, [each for each in summary.measures if each.name == name]))
        apart = [each for each in summary.differences if each.name == name]
        if apart:
            tables.append(_differences(name, apart))
    for column in dict.fromkeys(group.column for group in summary.groups):
        tables += [table for name in names if (table := _by_column(summary, column, name)).rows]
    if summary.tokens:
        cells = tuple((each.setting, f"{each.before:,.0f}", f"{each.after:,.0f}") for each in summary.tokens)
        tables.append(Table("visual tokens per answer, mean", ("setting", "before", "after"), cells))
    return tables


def _figures(summary: Summary) -> Iterator[str]:
    tables = summary_tables(summary)
    if not summary.measures:
        yield WITHOUT_SCORES
    for table in tables:
        yield ""
        yield table.title
        yield from _aligned(table)
    if summary.caveats:
        yield ""
        yield from (f"note: {caveat}" for caveat in summary.caveats)


def _aligned(table: Table) -> Iterator[str]:
    """Return lines of columns as wide as their widest cell."""
    lines = (table.headings, *table.rows)
    widths = [max(len(line[place]) for line in lines) for place in range(len(table.headings))]
    for line in lines:
        cells = [
            cell.ljust(width) if place < table.labels else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _scores(name: str, measures: Sequence[Measure]) -> Table:
    unjudged = ("unjudged",) if any(each.unjudged for each in measures) else ()
    rows = tuple(
        (
            each.setting,
            *_figure(each),
            *map(str, (each.counted, each.videos, each.failed, each.unjudged)[: 3 + len(unjudged)]),
        )
        for each in measures
    )
    return Table(name, ("setting", "score", "95 % interval", "items", "videos", "failed", *unjudged), rows)


def _differences(name: str, apart: Sequence[Difference]) -> Table:
    unit = "score" if name == JUDGED_SCORE else "points"
    factor, form = (1.0, "+.2f") if name == JUDGED_SCORE else (100.0, "+.1f")
    rows = tuple(
        (
            each.setting,
            format(factor * each.value, form),
            _ends(each.interval, lambda end: format(factor * end, form)),
            str(each.counted),
            str(each.videos),
        )
        for each in apart
    )
    title = f"{name}: difference from {apart[0].against}, over the same questions"
    return Table(title, ("setting", unit, "95 % interval", "items", "videos"), rows)


def _by_column(summary: Summary, column: str, name: str) -> Table:
    rows = tuple(
        (one_line(group.value), each.setting, *_figure(each), str(each.counted), str(each.videos))
        for group in summary.groups
        for each in group.measures
        if group.column == column and each.name == name
    )
    headings = (one_line(column), "setting", "score", "95 % interval", "items", "videos")
    return Table(f"{name} by {one_line(column)}", headings, rows, labels=2)


def _figure(measure: Measure) -> tuple[str, str]:
    form = ".2f" if measure.name == JUDGED_SCORE else ".1%"
    value = NOTHING if measure.value is None else format(measure.value, form)
    return value, _ends(measure.interval, lambda end: format(end, form))


def _ends(interval: Interval | None, form: Callable[[float], str]) -> str:
    return NOTHING if interval is None else " to ".join(map(form, interval))


def _problems(problems: Sequence[Problem], summary: Summary, what: str, listed: int) -> Iterator[str]:
    """Return the first of a kind; with their settings, where it is not all of them."""
    if not problems:
        return
    yield f"{len({problem.id for problem in problems})} of {summary.items} items {what}:"
    told = []
    for problem in problems:
        some = len(problem.settings) < len(summary.read_as)
        where = f"{problem.video}; {', '.join(problem.settings)}" if some else problem.video
        told.append(f"{one_line(problem.id)} ({one_line(where)}): {one_line(problem.reason)}")
    yield from _first(told, listed)


def _first(lines: Sequence[str], listed: int) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:listed])
    if len(lines) > listed:
        yield f"  and {len(lines) - listed} more; summary.json has all"
