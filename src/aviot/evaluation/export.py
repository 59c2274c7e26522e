"""A run for spreadsheets and documents: results and summary as CSV, summary as Markdown."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aviot.evaluation.item import Item
from aviot.evaluation.measures import Measure
from aviot.evaluation.report import WITHOUT_SCORES, Table, problem_lines, summary_tables
from aviot.evaluation.summary import Summary
from aviot.utils.journal import Row
from aviot.utils.printing import one_line, printable
from aviot.video.frames import Damage

RESULT_FIELDS = (
    "item", "id", "video", "setting", "compressor", "ratio", "part", "kind", "status", "answer", "prediction",
    "read_as", "how", "correct", "judge_correct", "judge_score", "unjudged", "frames", "supports", "tokens_before",
    "tokens_after", "reason", "unscored", "damage",
)  # fmt: skip
SUMMARY_FIELDS = (
    "table", "measure", "setting", "against", "column", "value", "score", "low", "high", "items", "videos", "failed",
    "unjudged", "note",
)  # fmt: skip

FORMULAS = ("=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}", "\N{FULLWIDTH HYPHEN-MINUS}",
            "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip
"""Beginnings of text that a spreadsheet would run as a formula."""

EVERYTHING = 10**9


def results_csv(rows: Iterable[Row], items: Sequence[Item]) -> bytes:
    """Return a run's rows with the columns of their items; text that would be a formula begins with an apostrophe."""
    names = list(dict.fromkeys(name for item in items for name in item.columns))
    headings = [f"item.{name}" if name in RESULT_FIELDS else name for name in names]
    lines = ([*_result(row), *(items[row["item"]].columns.get(name) for name in names)] for row in rows)
    return _csv((*RESULT_FIELDS, *headings), lines)


def summary_csv(summary: Summary) -> bytes:
    """Return every figure of a summary on a line of its own, then notes and damaged videos."""
    return _csv(SUMMARY_FIELDS, ([line.get(name) for name in SUMMARY_FIELDS] for line in _summary_lines(summary)))


def summary_markdown(summary: Summary) -> str:
    """Return a summary as Markdown: figures, notes, and every problem."""
    lines = ["# Evaluation", "", f"{summary.items} items about {summary.video_count} videos, {summary.rows} answers."]
    for table in summary_tables(summary):
        lines += ["", f"## {markdown_text(table.title)}", "", *_markdown_table(table)]
    if not summary.measures:
        lines += ["", WITHOUT_SCORES]
    notes = [*summary.caveats, *problem_lines(summary, EVERYTHING)]
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
    return [flat.get(name) for name in RESULT_FIELDS]


def _summary_lines(summary: Summary) -> Iterator[dict[str, Any]]:
    yield from ({"table": "score"} | _measured(each) for each in summary.measures)
    for apart in summary.differences:
        low, high = apart.interval or (None, None)
        told = {"measure": apart.name, "setting": apart.setting, "against": apart.against, "score": apart.value}
        yield {"table": "difference", "low": low, "high": high, "items": apart.counted, "videos": apart.videos} | told
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
    writer = csv.writer(text)  # lines end in CR LF (RFC 4180), so that either of them inside a cell is quoted
    writer.writerow(map(_cell, headings))
    writer.writerows(map(_cell, line) for line in lines)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Return a value that no spreadsheet runs and no terminal obeys: text like a formula is marked as text."""
    if isinstance(value, str):
        return ("'" if value.lstrip().startswith(FORMULAS) else "") + printable(value)
    return str(value).lower() if isinstance(value, bool) else value


def _markdown_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(map(markdown_text, table.headings))} |"
    yield f"|{' --- |' * table.labels}{' ---: |' * (len(table.headings) - table.labels)}"
    yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in table.rows)


def markdown_text(text: str) -> str:
    """Return text of any source on one line, in which nothing ends a table's cell or begins a tag, link or picture."""
    return re.sub(r"[\\|\[`]", r"\\\g<0>", one_line(text)).replace("<", "&lt;")
