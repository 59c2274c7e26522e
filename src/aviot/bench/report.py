"""A result for people, as tables, and for machines, as plain data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from aviot.bench.result import FIRST_TOKEN, Point, Result, Row
from aviot.bench.timing import Measurement, Part

PART_TITLES = {
    "position": "position",
    "encode": "encode",
    "compress": "compress",
    "replay": "compress,\nreplayed",
    "project": "project",
    "to_tokens": "features\nto tokens",
    "decoder_input": "decoder\ninput",
    "prefill": "prefill",
    "next_token": "next\ntoken",
    "backward": "forward,\nbackward",
}
BANDWIDTH_TITLE = "band-\nwidth\nshare"
SPANNING = ("to_tokens", "decoder_input")  # what is more than one part in one go
NOTHING = "–"  # noqa: RUF001
Cell = Callable[[Part | None], str]
TIMES = "ms: median (slowest minus fastest)"
MEMORY = "peak extra memory, MiB"


def as_plain(result: Result) -> dict[str, Any]:
    """The whole result as JSON knows it."""
    return asdict(result) | {"first_token": list(FIRST_TOKEN), "spread": "slowest repeat minus fastest"}


def print_report(result: Result, console: Console) -> None:
    """Tables, one group for each frame count and batch size, or one for each axis of the scaling."""
    for line in _preamble(result):
        console.print(line, markup=False, highlight=False)
    for (frames, batch), group in groupby(result.rows, key=lambda row: (row.frames, row.batch)):
        rows = list(group)
        setting = f"{frames} frames, batch {batch}"
        apart = [name for name in PART_TITLES if name not in SPANNING]
        console.print(_parts_table(f"{setting}: the parts\n{TIMES}", rows, apart, _time))
        console.print(_summary_table(f"{setting}: together\n{TIMES}", rows))
        if _has_memory(rows):
            console.print(_parts_table(f"{setting}\n{MEMORY}", rows, list(PART_TITLES), _memory))
    for axis, points in groupby(result.scaling, key=lambda point: point.axis):
        console.print(_scaling_table(axis, list(points)))
    for note in result.notes:
        console.print(note, markup=False, highlight=False)
    if result.machine["device"] == "cpu":
        console.print("No memory figures: PyTorch does not count a CPU's.")


def _preamble(result: Result) -> Iterator[str]:
    yield f"{result.model}; {result.dtype} on {result.machine['device']}; torch {result.versions['torch']}"
    yield f"{result.repeats} timed runs each after {result.warmup} to warm up"
    yield f"memory bandwidth, by a large copy: {result.bandwidth_gb_per_s:,.0f} GB/s"
    worst = max(check.feature_error / check.feature_limit for check in result.checks)
    errors = ", ".join(f"{check.case} {check.feature_error:.1e}" for check in result.checks)
    yield f"checked against the float64 reference: {errors} ({worst:.0%} of what is allowed)"
    for decoding in result.decoding:
        if isinstance(decoding.part, Measurement):
            yield f"decode: {decoding.frames} frames of {decoding.source} in {_time(decoding.part)} ms".replace(
                "\n", " "
            )
        else:
            yield f"decode: {decoding.frames} frames not measured, {decoding.part.not_measured}"


def _table(title: str) -> Table:
    """Return a table narrow enough for eight columns of 80 characters in all."""
    return Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)


def _add_columns(table: Table, headings: Sequence[str], names: int = 0) -> None:
    """Add columns of figures after the first `names` of words; a cell is broken where it must be, never cut."""
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < names else "right", overflow="fold")


def _parts_table(title: str, rows: Sequence[Row], names: Sequence[str], cell: Cell) -> Table:
    there = [name for name in names if any(name in row.parts for row in rows)]
    table = _table(title)
    _add_columns(table, ["method", "K", *(PART_TITLES[name] for name in there)], names=1)
    for row in rows:
        table.add_row(row.title, str(row.supports), *(cell(row.parts.get(name)) for name in there))
    return table


def _summary_table(title: str, rows: Sequence[Row]) -> Table:
    """What spans several parts or follows from them; a column where some row has the figure."""
    columns = {
        "visual\ntokens": [_number(row.tokens, ",d") for row in rows],
        **{PART_TITLES[name]: [_time(row.parts.get(name)) for row in rows] for name in SPANNING},
        "first\ntoken": [NOTHING if row.first_token_ms is None else _digits(row.first_token_ms) for row in rows],
        "times\nas fast": [_number(row.factor, ".2f") for row in rows],
        "videos/s": [_number(row.videos_per_second, ",.2f") for row in rows],
        BANDWIDTH_TITLE: [_number(row.bandwidth_share, ".1%") for row in rows],
    }
    shown = {heading: cells for heading, cells in columns.items() if set(cells) != {NOTHING}}
    table = _table(title)
    _add_columns(table, ["method", *shown], names=1)
    for row, *cells in zip(rows, *shown.values(), strict=True):
        table.add_row(row.title, *cells)
    return table


def _scaling_table(axis: str, points: Sequence[Point]) -> Table:
    table = _table(f"AVIOT alone against {axis}\n{TIMES}")
    names = [name for name in PART_TITLES if any(name in point.parts for point in points)]
    with_memory = _has_memory(points)
    memories = [f"{PART_TITLES[name]}, MiB" for name in names if with_memory]
    titles = (PART_TITLES[name] for name in names)
    _add_columns(table, ["T", "K", "S", "D", *titles, BANDWIDTH_TITLE, *memories])
    for point in points:
        sizes = (str(size) for size in (point.frames, point.supports, point.patches, point.dim))
        times = (_time(point.parts.get(name)) for name in names)
        memory = (_memory(point.parts.get(name)) for name in names if with_memory)
        table.add_row(*sizes, *times, _number(point.bandwidth_share, ".1%"), *memory)
    return table


def _has_memory(measured: Sequence[Row | Point]) -> bool:
    parts = (part for each in measured for part in each.parts.values())
    return any(isinstance(part, Measurement) and part.peak_extra_mib is not None for part in parts)


def _time(part: Part | None) -> str:
    if isinstance(part, Measurement):
        return f"{_digits(part.median_ms)}\n({_digits(part.spread_ms)})"
    return NOTHING if part is None else part.not_measured


def _digits(value: float) -> str:
    """Format milliseconds; from a second on, decimals would only widen the table."""
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _memory(part: Part | None) -> str:
    if isinstance(part, Measurement):
        return _number(part.peak_extra_mib, ",.0f")
    return NOTHING if part is None else part.not_measured


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)
