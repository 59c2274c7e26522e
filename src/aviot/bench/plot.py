"""Plots of a result. matplotlib is imported only if one is drawn."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from aviot.bench.result import FIRST_TOKEN, MethodResult, Result, ScalingPoint, Timeline
from aviot.bench.timing import Measurement, Part

Draw = Callable[[Any], None]  # draws into one panel

AXIS_TITLES = {"T": "frames T, at one ratio", "K": "supports K", "S": "patches S", "D": "channels D"}
ALONE = ("compress",)
INCHES = 5.0  # width of one panel
DPI = 150
PART_TITLES = {
    "position": "position",
    "encode": "encode",
    "compress": "compress",
    "replay": "compress,\nreplayed",
    "inside": "inside the\ndecoder",
    "project": "project",
    "to_tokens": "features\nto tokens",
    "decoder_input": "decoder\ninput",
    "prefill": "prefill",
    "next_token": "next\ntoken",
    "backward": "forward,\nbackward",
}


def check_plot(path: Path) -> None:
    """Raise ValueError for a plot that could not be drawn, before anything is measured."""
    if find_spec("matplotlib") is None:
        raise ValueError(
            "a plot needs matplotlib, which is not installed; in a clone: "
            "pip install --constraint constraints.txt '.[plot]'"
        )
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if _format(path.suffix) not in known:
        raise ValueError(f"{path}: a plot's name must end in one of {', '.join(sorted(known))}, got {path.suffix!r}")


def draw_plot(result: Result, suffix: str) -> bytes:
    """Draw the scaling's four curves, or a bar per method, in the format of a file suffix."""
    from matplotlib.figure import Figure

    groups = _groups(result)
    if not groups:
        raise ValueError("nothing was measured, so there is nothing to draw; the report's notes say why")
    figure = Figure(figsize=(INCHES * len(groups), INCHES), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for panel, (title, draw) in zip(panels, groups, strict=True):
        draw(panel)
        panel.set_title(title)
    figure.suptitle(f"{result.model}; {result.dtype} on {result.machine['device']}")
    out = io.BytesIO()
    figure.savefig(out, format=_format(suffix), dpi=DPI)
    return out.getvalue()


def _format(suffix: str) -> str:
    return suffix.removeprefix(".").lower() or "png"


def _groups(result: Result) -> list[tuple[str, Draw]]:
    """Return the title of each panel, and what draws it."""
    if result.scaling:
        axes = groupby(result.scaling, key=lambda point: point.axis)
        return [(f"against {axis}", partial(_draw_curve, points=list(group))) for axis, group in axes]
    settings = groupby(result.rows, key=lambda row: (row.frames, row.batch))
    panels: list[tuple[str, Draw]] = [
        (f"{frames} frames, batch {batch}", partial(_draw_bars, rows=list(group)))
        for (frames, batch), group in settings
    ]
    if result.timeline is not None:
        panels.append(("from the file to the first token", partial(_draw_timeline, timeline=result.timeline)))
    return panels


def _draw_timeline(panel: Any, timeline: Timeline) -> None:
    """Draw what ran when, and below it the halves alone and the least time of each kind of work."""
    rows = {
        name: [(start, end - start) for each, start, end in timeline.spans if each == name]
        for name, *_ in timeline.spans
    }
    rows |= {f"{name} alone": [(0.0, timeline.parts[name].median_ms)] for name in ("decode", "model")}
    rows |= {f"{name}, at best": [(0.0, least)] for name, least in timeline.light.milliseconds.items()}
    for place, (name, spans) in enumerate(rows.items()):
        colour = "C2" if name.endswith("at best") else "C1" if name.endswith("alone") else "C0"
        panel.broken_barh(spans, (place - 0.4, 0.8), edgecolor="white", facecolor=colour)
    panel.set_yticks(range(len(rows)), list(rows))
    panel.invert_yaxis()
    panel.set_xlabel("ms since the file was opened")


def _draw_bars(panel: Any, rows: Sequence[MethodResult]) -> None:
    """Draw the time to the first token as stacked parts, or the compression if nothing else was measured."""
    names = FIRST_TOKEN if any("prefill" in row.parts for row in rows) else ALONE
    titles = [_one_line(row.title) for row in rows]
    reached = [0.0] * len(rows)
    for name in names:
        spent = [_median(row.parts.get(name)) for row in rows]
        panel.barh(titles, spent, left=reached, label=_one_line(PART_TITLES[name]))
        reached = [before + more for before, more in zip(reached, spent, strict=True)]
    panel.invert_yaxis()
    panel.set_xlabel("ms")
    panel.legend()


def _draw_curve(panel: Any, points: Sequence[ScalingPoint]) -> None:
    for name in points[0].parts:
        measured = [(p.value, part) for p in points if isinstance(part := p.parts[name], Measurement)]
        values = [value for value, _ in measured]
        medians = [part.median_ms for _, part in measured]
        spreads = [part.spread_ms / 2 for _, part in measured]
        panel.errorbar(values, medians, yerr=spreads, marker="o", capsize=3, label=_one_line(PART_TITLES[name]))
    panel.set_xlabel(AXIS_TITLES[points[0].axis])
    panel.set_ylabel("ms")
    panel.set_ylim(bottom=0)
    panel.legend()


def _median(part: Part | None) -> float:
    """Return a bar's length: the median, or 0 if it was not measured."""
    return part.median_ms if isinstance(part, Measurement) else 0.0


def _one_line(title: str) -> str:
    """Return a heading on one line."""
    return title.replace("\n", " ")
