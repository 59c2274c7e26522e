"""A summary for people, problems first, and for machines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from aviot.evaluation.summary import JUDGED_SCORE, Measure, Problem, Summary

LISTED = 10
"""Problems of a kind that are named at a terminal; the summary's file has all."""


def as_plain(summary: Summary) -> dict[str, Any]:
    """The whole summary as JSON knows it."""
    return asdict(summary)


def print_summary(summary: Summary, console: Console) -> None:
    """What went wrong, then the figures."""
    for line in _lines(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    table = Table()
    for heading in ("setting", "measure", "score", "95 % interval", "items", "failed", "unjudged"):
        table.add_column(heading, justify="left" if heading in ("setting", "measure") else "right")
    for measure in summary.measures:
        table.add_row(*_cells(measure))
    if summary.measures:
        console.print(table)
    else:
        console.print("No item has an answer: there are predictions, and no score.")


def _lines(summary: Summary) -> Iterator[str]:
    yield from (f"note: {note}" for note in summary.notes)
    yield from _listing(summary.failed, summary, f"could not be asked and count as wrong (videos in {summary.videos})")
    yield from _listing(summary.without_answer, summary, "have no usable answer and are not scored")
    yield from _listing(summary.unjudged, summary, "were not judged and are not in the judge's figures")


def _listing(problems: Sequence[Problem], summary: Summary, what: str) -> Iterator[str]:
    """The first of a kind; with their settings, where it is not all of them."""
    if not problems:
        return
    yield f"{len({problem.id for problem in problems})} of {summary.items} items {what}:"
    for problem in problems[:LISTED]:
        some = len(problem.settings) < len(summary.read_as)
        where = f"{problem.video}; {', '.join(problem.settings)}" if some else problem.video
        yield f"  {problem.id} ({where}): {problem.reason}"
    if len(problems) > LISTED:
        yield f"  and {len(problems) - LISTED} more; summary.json has all"


def _cells(measure: Measure) -> tuple[str, ...]:
    form = ".2f" if measure.name == JUDGED_SCORE else ".1%"
    value = "none" if measure.value is None else format(measure.value, form)
    low_high = "none" if measure.interval is None else " to ".join(format(end, form) for end in measure.interval)
    counts = (str(measure.counted), str(measure.failed), str(measure.unjudged))
    return measure.setting, measure.name, value, low_high, *counts
