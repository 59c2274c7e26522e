"""A run's summary as terminal text, plain values, CSV and Markdown; its results as CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from aviot.evaluation.grounding.overlap import THRESHOLDS
from aviot.evaluation.intervals import Interval
from aviot.evaluation.item import Item
from aviot.evaluation.measures import (
    JUDGED_SCORE,
    MEAN_IOU,
    MEAN_UNION_IOU,
    Difference,
    Measure,
    recall_name,
)
from aviot.evaluation.summary import Problem, Summary
from aviot.utils.journal import Row
from aviot.utils.printing import json_text, one_line, printable
from aviot.video.frames import Damage

LISTED = 10
"""Problems of one kind that the terminal lists; the summary's files list all."""

NOTHING = "none"
WITHOUT_SCORES = "No item has an answer: there are predictions, and no score."


RESULT_FIELDS = (
    "item", "id", "video", "setting", "method", "ratio", "part", "kind", "status", "answer", "prediction",
    "read_as", "how", "correct", "judge_correct", "judge_score", "unjudged", "frames", "supports", "tokens_before",
    "tokens_after", "tokens_read", "budget", "probability", "ran", "reason", "unscored", "damage", "spans", "iou",
    "union_iou",
)  # fmt: skip
SUMMARY_FIELDS = (
    "table", "measure", "setting", "against", "column", "value", "score", "low", "high", "items", "videos", "failed",
    "unjudged", "note",
)  # fmt: skip
FORMULAS = ("=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}", "\N{FULLWIDTH HYPHEN-MINUS}",
            "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip
"""Prefixes of text that a spreadsheet would evaluate as a formula."""

NO_LIMIT = 10**9


@dataclass(frozen=True)
class Table:
    """A table of texts; the first `labels` columns are left-aligned labels, the others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def as_dict(summary: Summary) -> dict[str, Any]:
    """Return the summary as plain values for JSON."""
    return asdict(summary)


def print_summary(summary: Summary, console: Console) -> None:
    """Print problems, then scores; lines are never truncated, however narrow the terminal."""
    for line in [*problem_lines(summary, LISTED), *_table_lines(summary)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def problem_lines(summary: Summary, listed: int) -> Iterator[str]:
    """Yield notes and problems as sentences, at most `listed` per kind."""
    yield from (f"note: {one_line(note)}" for note in summary.notes)
    what = f"could not be asked and count as wrong (videos in {summary.videos})"
    yield from _problems(summary.failed, summary, what, listed)
    yield from _problems(summary.without_answer, summary, "have no usable answer and are not scored", listed)
    yield from _problems(summary.unjudged, summary, "were not judged and are not in the judge's figures", listed)
    if summary.damaged:
        yield f"{len(summary.damaged)} of {summary.video_count} videos are damaged; what can be read of them was asked:"
        yield from _first([f"{one_line(each.video)}: {one_line(each.damage)}" for each in summary.damaged], listed)


def summary_tables(summary: Summary) -> list[Table]:
    """Return the tables of scores, differences, scores by column, and visual tokens."""
    names = list(dict.fromkeys(measure.name for measure in summary.measures))
    tables = _overview(summary.measures) if MEAN_IOU in names else []
    for name in names:
        tables.append(_score_table(name, [each for each in summary.measures if each.name == name]))
        differences = [each for each in summary.differences if each.name == name]
        if differences:
            tables.append(_difference_table(name, differences))
    for column in dict.fromkeys(group.column for group in summary.groups):
        tables += [table for name in names if (table := _column_table(summary, column, name)).rows]
    if summary.tokens:
        tried = any(each.read != each.after for each in summary.tokens)  # by automatic budgets
        counts = ("before", "after", "read in all") if tried else ("before", "after")
        cells = tuple(
            (each.setting, *(f"{count:,.0f}" for count in (each.before, each.after, each.read)[: len(counts)]))
            for each in summary.tokens
        )
        tables.append(Table("visual tokens per answer, mean", ("setting", *counts), cells))
    return tables


def _overview(measures: Sequence[Measure]) -> list[Table]:
    """Return a table of all scores of temporal grounding, one line per setting."""
    names = (*map(recall_name, THRESHOLDS), MEAN_IOU, MEAN_UNION_IOU)
    values = {(each.setting, each.name): each for each in measures}
    settings = list(dict.fromkeys(each.setting for each in measures if each.name == MEAN_IOU))
    rows = [(name, *(_figure(values[name, one])[0] for one in names)) for name in settings]
    cells = tuple((*row, str(values[row[0], MEAN_IOU].counted)) for row in rows)
    return [Table("temporal grounding", ("setting", *names, "items"), cells)]


def _table_lines(summary: Summary) -> Iterator[str]:
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
    """Yield the table's lines, each column as wide as its widest cell."""
    lines = (table.headings, *table.rows)
    widths = [max(len(line[place]) for line in lines) for place in range(len(table.headings))]
    for line in lines:
        cells = [
            cell.ljust(width) if place < table.labels else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _score_table(name: str, measures: Sequence[Measure]) -> Table:
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


def _difference_table(name: str, differences: Sequence[Difference]) -> Table:
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
        for each in differences
    )
    title = f"{name}: difference from {differences[0].against}, over the same questions"
    return Table(title, ("setting", unit, "95 % interval", "items", "videos"), rows)


def _column_table(summary: Summary, column: str, name: str) -> Table:
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
    """Yield the first `listed` problems of a kind, with their settings unless these are all."""
    if not problems:
        return
    yield f"{len({problem.id for problem in problems})} of {summary.items} items {what}:"
    lines = []
    for problem in problems:
        some = len(problem.settings) < len(summary.read_as)
        where = f"{problem.video}; {', '.join(problem.settings)}" if some else problem.video
        lines.append(f"{one_line(problem.id)} ({one_line(where)}): {one_line(problem.reason)}")
    yield from _first(lines, listed)


def _first(lines: Sequence[str], listed: int) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:listed])
    if len(lines) > listed:
        yield f"  and {len(lines) - listed} more; summary.json has all"


def results_csv(rows: Iterable[Row], items: Sequence[Item]) -> bytes:
    """Return result rows with their items' columns as CSV; text that looks like a formula gets an apostrophe."""
    names = list(dict.fromkeys(name for item in items for name in item.columns))
    headings = [f"item.{name}" if name in RESULT_FIELDS else name for name in names]
    lines = ([*_result(row), *(items[row["item"]].columns.get(name) for name in names)] for row in rows)
    return _csv((*RESULT_FIELDS, *headings), lines)


def summary_csv(summary: Summary) -> bytes:
    """Return a summary as CSV: one line per score, difference, note and damaged video."""
    return _csv(SUMMARY_FIELDS, ([line.get(name) for name in SUMMARY_FIELDS] for line in _summary_lines(summary)))


def summary_markdown(summary: Summary) -> str:
    """Return a summary as Markdown: tables, notes, and every problem."""
    lines = ["# Evaluation", "", f"{summary.items} items about {summary.video_count} videos, {summary.rows} answers."]
    for table in summary_tables(summary):
        lines += ["", f"## {markdown_text(table.title)}", "", *_markdown_table(table)]
    if not summary.measures:
        lines += ["", WITHOUT_SCORES]
    notes = [*summary.caveats, *problem_lines(summary, NO_LIMIT)]
    if notes:
        lines += ["", "## Notes", ""]
        lines += [
            f"  - {markdown_text(note.strip())}" if note.startswith("  ") else f"- {markdown_text(note)}"
            for note in notes
        ]
    return "\n".join(lines) + "\n"


def _result(row: Row) -> list[Any]:
    judge = row.get("judge", {})
    flat = row | {"judge_correct": judge.get("correct"), "judge_score": judge.get("score")}
    flat |= {"unjudged": judge.get("unjudged"), "damage": str(Damage(**row["damage"])) if "damage" in row else None}
    flat |= {"spans": json_text(row["spans"])} if "spans" in row else {}
    return [flat.get(name) for name in RESULT_FIELDS]


def _summary_lines(summary: Summary) -> Iterator[dict[str, Any]]:
    yield from ({"table": "score"} | _measured(each) for each in summary.measures)
    for each in summary.differences:
        low, high = each.interval or (None, None)
        yield {
            "table": "difference",
            "measure": each.name,
            "setting": each.setting,
            "against": each.against,
            "score": each.value,
            "low": low,
            "high": high,
            "items": each.counted,
            "videos": each.videos,
        }
    for group in summary.groups:
        place = {"table": "group", "column": group.column, "value": group.value}
        yield from (place | _measured(each) for each in group.measures)
    yield from ({"table": "note", "note": note} for note in (*summary.notes, *summary.caveats))
    yield from ({"table": "damaged", "value": each.video, "note": each.damage} for each in summary.damaged)


def _measured(measure: Measure) -> dict[str, Any]:
    low, high = measure.interval or (None, None)
    return {
        "measure": measure.name,
        "setting": measure.setting,
        "score": measure.value,
        "low": low,
        "high": high,
        "items": measure.counted,
        "videos": measure.videos,
        "failed": measure.failed,
        "unjudged": measure.unjudged,
    }


def _csv(headings: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end in CR LF (RFC 4180), so a cell with either of them is quoted
    writer.writerow(map(_cell, headings))
    writer.writerows(map(_cell, line) for line in lines)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Return a cell without control characters; text that looks like a formula gets an apostrophe."""
    if isinstance(value, str):
        return ("'" if value.lstrip().startswith(FORMULAS) else "") + printable(value)
    return str(value).lower() if isinstance(value, bool) else value


def _markdown_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(map(markdown_text, table.headings))} |"
    yield f"|{' --- |' * table.labels}{' ---: |' * (len(table.headings) - table.labels)}"
    yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in table.rows)


def markdown_text(text: str) -> str:
    """Return text on one line with the characters escaped that end a cell or begin a tag, link or image."""
    return re.sub(r"[\\|\[`]", r"\\\g<0>", one_line(text)).replace("<", "&lt;")
