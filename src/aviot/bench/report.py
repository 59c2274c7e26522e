"""Reports of a result: tables on the terminal, JSON, and the files of both."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from aviot.bench.plot import PART_TITLES, check_plot, draw_plot
from aviot.bench.result import FIRST_TOKEN, OWN, MethodResult, Result, ScalingPoint, Timeline, title_of
from aviot.bench.timing import Measurement, Part
from aviot.utils.files import check_output, explain_write_errors, write_durably
from aviot.utils.printing import SafeConsole

BANDWIDTH_TITLE = "band-\nwidth\nshare"
SPANNING = ("to_tokens", "decoder_input")  # measurements that span several parts
NOTHING = "–"  # noqa: RUF001
Cell = Callable[[Part | None], str]
TIMES = "ms: median (slowest minus fastest)"
MEMORY = "peak extra memory, MiB"
BAR = 40  # columns of a timeline's bars
WHOLES = {
    "overlapped": "as a session does it, encoding while decoding",
    "in turn": "one part after the other",
    "decode": "decoding alone",
    "model": "encoder, compression and prefill alone",
}
WRITE_ADVICE = "free some space, or name a file elsewhere"


def check_outputs(output: Path | None, plot: Path | None) -> None:
    """Raise for files that could not be written, before anything is measured."""
    if plot is not None:
        check_plot(plot)
    for path in (output, plot):
        if path is not None:
            check_output(path)


def write_outputs(result: Result, output: Path | None, plot: Path | None, *, as_json: bool) -> None:
    """Print the tables or JSON, and write the files that are not None."""
    text = json.dumps(as_dict(result), indent=2)
    if as_json:
        print(text)
    else:
        print_report(result, SafeConsole())
    if output is not None:
        _write_file(output, f"{text}\n".encode())
    if plot is not None:
        _write_file(plot, draw_plot(result, plot.suffix))


def as_dict(result: Result) -> dict[str, Any]:
    """Return the result as JSON data."""
    return asdict(result) | {"first_token": list(FIRST_TOKEN), "spread": "slowest repeat minus fastest"}


def print_report(result: Result, console: Console) -> None:
    """Print tables, one group per frame count and batch size, or one table per axis of the scaling."""
    for line in _preamble(result):
        console.print(line, markup=False, highlight=False)
    for (frames, batch), group in groupby(result.rows, key=lambda row: (row.frames, row.batch)):
        rows = list(group)
        setting = f"{frames} frames, batch {batch}"
        if all(set(row.parts) <= set(OWN) for row in rows):
            console.print(_methods_table(f"{setting}, the same tokens\n{TIMES}", rows))
            _print_refusals(rows, console)
            continue
        apart = [name for name in PART_TITLES if name not in SPANNING]
        console.print(_parts_table(f"{setting}: the parts\n{TIMES}", rows, apart, _time))
        console.print(_summary_table(f"{setting}: together\n{TIMES}", rows))
        if _has_memory(rows):
            console.print(_parts_table(f"{setting}\n{MEMORY}", rows, list(PART_TITLES), _memory))
        _print_refusals(rows, console)
    for axis, points in groupby(result.scaling, key=lambda point: point.axis):
        console.print(_scaling_table(axis, list(points)))
    if result.timeline is not None:
        _print_timeline(result.timeline, console)
    for note in result.notes:
        console.print(note, markup=False, highlight=False)
    if result.machine["device"] == "cpu":
        console.print("No memory figures: PyTorch does not count memory on a CPU.")


def _print_refusals(rows: Sequence[MethodResult], console: Console) -> None:
    for row in rows:
        if row.refusal:
            console.print(f"{row.method}, ratio {row.ratio:g}: {row.refusal}", markup=False, highlight=False)


def _print_timeline(timeline: Timeline, console: Console) -> None:
    """Print the bars of one run, the times of the whole and its halves, and what would be the least."""
    about = f"{timeline.frames} of {timeline.pictures:,} pictures, {title_of(timeline.method)} at {timeline.ratio:g}"
    lines = [f"from {timeline.source} to the first token: {about}", *_bars(timeline), ""]
    lines += [f"{WHOLES[name]}: {_time(part).replace(chr(10), ' ')} ms" for name, part in timeline.parts.items()]
    over = timeline.parts["overlapped"].median_ms / timeline.limit_ms
    lines.append(f"overlapped takes {over:.2f} times the larger half, {_digits(timeline.limit_ms)} ms")
    light, decode = timeline.light, timeline.parts["decode"].median_ms / 1000
    lines.append(f"decoding went through {timeline.pictures / decode:,.0f} pictures of the file a second")
    rates = f"{light.operations_per_second / 1e9:,.0f} GFLOP/s and {light.bytes_per_second / 1e9:,.0f} GB/s"
    lines.append(f"at this machine's best, {rates}:")
    work = {name: f"{count / 1e9:,.2f} GFLOP" for name, count in light.operations.items()}
    lines += [
        f"  {name}: {_digits(least)} ms ({work.get(name, f'{light.weight_bytes / 1e6:,.2f} MB')})"
        for name, least in light.milliseconds.items()
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _bars(timeline: Timeline) -> Iterator[str]:
    """Yield a bar per part, with all of its spans."""
    whole = max(end for _, _, end in timeline.spans)
    for name in dict.fromkeys(name for name, _, _ in timeline.spans):
        spans = [(start, end) for each, start, end in timeline.spans if each == name]
        bar = [" "] * BAR
        for start, end in spans:
            first = min(BAR - 1, int(BAR * start / whole))
            last = max(first + 1, round(BAR * end / whole))
            bar[first:last] = "#" * (last - first)
        yield f"{name:9}{''.join(bar)} {_digits(spans[0][0])} to {_digits(spans[-1][1])} ms"


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
    """Return a table whose padding fits eight columns into 80 characters."""
    return Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)


def _add_columns(table: Table, headings: Sequence[str], names: int = 0) -> None:
    """Add columns, the first `names` of them left-aligned; long cells are wrapped, never truncated."""
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < names else "right", overflow="fold")


def _parts_table(title: str, rows: Sequence[MethodResult], names: Sequence[str], cell: Cell) -> Table:
    there = [name for name in names if any(name in row.parts for row in rows)]
    table = _table(title)
    _add_columns(table, ["method", "K", *(PART_TITLES[name] for name in there)], names=1)
    for row in rows:
        table.add_row(row.title, str(row.supports), *(cell(row.parts.get(name)) for name in there))
    return table


def _methods_table(title: str, rows: Sequence[MethodResult]) -> Table:
    """Return a table of methods by themselves: tokens that are left, times, and memory."""
    there = [name for name in OWN if any(name in row.parts for row in rows)]
    memories = [name for name in there if _has_memory(rows)]
    table = _table(title)
    _add_columns(table, ["method", "visual\ntokens", *(PART_TITLES[name] for name in there)], names=1)
    for name in memories:
        table.add_column(f"{PART_TITLES[name]},\nMiB", justify="right", overflow="fold")
    for row in rows:
        times = (_time(row.parts.get(name)) for name in there)
        table.add_row(
            row.title, _number(row.tokens, ",d"), *times, *(_memory(row.parts.get(name)) for name in memories)
        )
    return table


def _summary_table(title: str, rows: Sequence[MethodResult]) -> Table:
    """Return a table of what spans several parts or follows from them, without empty columns."""
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


def _scaling_table(axis: str, points: Sequence[ScalingPoint]) -> Table:
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


def _has_memory(measured: Sequence[MethodResult | ScalingPoint]) -> bool:
    parts = (part for each in measured for part in each.parts.values())
    return any(isinstance(part, Measurement) and part.peak_extra_mib is not None for part in parts)


def _time(part: Part | None) -> str:
    if isinstance(part, Measurement):
        return f"{_digits(part.median_ms)}\n({_digits(part.spread_ms)})"
    return NOTHING if part is None else part.not_measured


def _digits(value: float) -> str:
    """Return milliseconds as text, without decimals from 1000 on, which would only widen the table."""
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _memory(part: Part | None) -> str:
    if isinstance(part, Measurement):
        return _number(part.peak_extra_mib, ",.0f")
    return NOTHING if part is None else part.not_measured


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _write_file(path: Path, data: bytes) -> None:
    with explain_write_errors(path, WRITE_ADVICE):
        write_durably(path, data)
