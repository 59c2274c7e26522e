"""Plots of the figures. matplotlib is imported only when they are drawn."""

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

from aviot_lab.reproduce.separation import DISTANCES

INCHES = (7.5, 3.6)
TALL = (7.5, 5.2)


class Draw(Protocol):
    """Draws figures on a panel."""

    def __call__(self, panel: Any, figures: Mapping[str, Any]) -> None:
        """Draw."""


def require_matplotlib() -> None:
    """Raise ValueError without matplotlib, before anything is measured."""
    if find_spec("matplotlib") is None:
        raise ValueError(
            "the report's plots need matplotlib, which is not installed; in a clone: "
            "pip install --constraint constraints.txt '.[plot,video]'"
        )


def draw_plots(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return every plot as SVG, by name."""
    return {name: svg_of(partial(draw, figures=figures), inches) for name, (draw, inches) in PLOTS.items()}


def svg_of(draw: Callable[[Any], None], inches: tuple[float, float]) -> str:
    """Return what a function draws on a panel as SVG; the same drawing gives the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "aviot", "font.size": 9}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()


def _controlled(panel: Any, figures: Mapping[str, Any]) -> None:
    whole, *lines = figures["controlled"]["lines"]
    _band(panel, whole)
    ratios = list(dict.fromkeys(line["ratio"] for line in lines))
    titles = list(dict.fromkeys(line["title"] for line in lines))
    width = 0.8 / len(titles)
    for place, title in enumerate(titles):
        mine = [line for line in lines if line["title"] == title]
        where = [ratios.index(line["ratio"]) + (place - (len(titles) - 1) / 2) * width for line in mine]
        panel.bar(where, _shares(mine), width, yerr=_errors(mine), capsize=2, label=title)
    panel.set_xticks(range(len(ratios)), [f"ratio {ratio:g}" for ratio in ratios])
    panel.set_ylabel("right, %")
    panel.legend(fontsize=7)


def _curve(panel: Any, figures: Mapping[str, Any]) -> None:
    _band(panel, figures["controlled"]["lines"][0])
    for title, lines in _by_title(figures["controlled"]["lines"][1:]).items():
        if title != "AVIOT":
            panel.plot([line["ratio"] for line in lines], _shares(lines), "--", marker=".", label=title)
    for title, lines in _by_title(figures["curve"]["lines"]).items():
        ratios = [line["ratio"] for line in lines]
        panel.errorbar(ratios, _shares(lines), yerr=_errors(lines), marker="o", capsize=3, label=f"AVIOT, {title}")
    panel.axvline(figures["curve"]["trained_to"], color="0.6", linestyle=":", label="training's largest ratio")
    panel.set_xlabel("ratio")
    panel.set_ylabel("right, %")
    panel.legend(fontsize=7)


def _ablation(panel: Any, figures: Mapping[str, Any]) -> None:
    by_ratio: dict[float, list[Any]] = {}
    for line in figures["ablation"]["lines"]:
        by_ratio.setdefault(line["ratio"], []).append(line)
    for place, (ratio, lines) in enumerate(by_ratio.items()):
        offset = 0.2 * (place - (len(by_ratio) - 1) / 2)
        heights = [number + offset for number in range(len(lines))]
        panel.errorbar(_shares(lines), heights, xerr=_errors(lines), fmt="o", capsize=2, label=f"ratio {ratio:g}")
    titles = [line["title"] for line in next(iter(by_ratio.values()))]
    panel.set_yticks(range(len(titles)), titles)
    panel.invert_yaxis()
    panel.set_xlabel("right, %")
    panel.legend(fontsize=7)


def _families(panel: Any, figures: Mapping[str, Any]) -> None:
    largest = max(line["ratio"] or 0 for line in figures["controlled"]["lines"])
    shown = [line for line in figures["controlled"]["lines"] if line["ratio"] in (None, largest)]
    for place, line in enumerate(shown):
        found = figures["families"][line["row"]]
        heights = [number + 0.15 * (place - (len(shown) - 1) / 2) for number in range(len(found))]
        title = line["title"] if line["ratio"] is None else f"{line['title']}, ratio {line['ratio']:g}"
        shares = list(found.values())
        panel.errorbar(
            _shares(shares), heights, xerr=_errors(shares), fmt="o", markersize=3, linewidth=0.8, label=title
        )
        panel.set_yticks(range(len(found)), list(found))
    panel.invert_yaxis()
    panel.set_xlim(-2, 102)
    panel.set_xlabel("right, %")
    panel.grid(axis="y", alpha=0.2)
    panel.legend(fontsize=7)


def _distances(panel: Any, figures: Mapping[str, Any]) -> None:
    found = figures["intervention"]["distances"]
    for place, (quantity, title) in enumerate(DISTANCES.items()):
        means = [one[quantity]["mean"] for one in found]
        spans = [one[quantity]["interval"] for one in found]
        errors = _around(means, spans)
        panel.barh([number + 0.35 * place for number in range(len(found))], means, 0.3, xerr=errors, label=title)
    panel.set_yticks([number + 0.175 for number in range(len(found))], [one["kind"] for one in found])
    panel.invert_yaxis()
    panel.legend(fontsize=7)


def _gates(panel: Any, figures: Mapping[str, Any]) -> None:
    shares = [one for one in figures["gates"] if one["quantity"] != "budget_entropy"]
    ratios = list(dict.fromkeys(one["ratio"] for one in shares))
    reached = [0.0] * len(ratios)
    for name in dict.fromkeys(one["quantity"] for one in shares):
        means = [next(o["mean"] for o in shares if (o["ratio"], o["quantity"]) == (ratio, name)) for ratio in ratios]
        panel.barh([f"ratio {ratio:g}" for ratio in ratios], means, left=reached, label=name)
        reached = [before + more for before, more in zip(reached, means, strict=True)]
    panel.set_xlabel("share of the outputs")
    panel.legend(fontsize=7)


def _band(panel: Any, whole: Mapping[str, Any]) -> None:
    low, high = whole["interval"]
    panel.axhspan(100 * low, 100 * high, color="0.5", alpha=0.2)
    panel.axhline(100 * whole["accuracy"], color="0.3", linewidth=1, label="uncompressed")


def _by_title(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        found.setdefault(line["title"], []).append(line)
    return found


def _shares(lines: Sequence[Mapping[str, Any]]) -> list[float]:
    return [100 * line["accuracy"] for line in lines]


def _errors(lines: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    return _around(_shares(lines), [[100 * end for end in line["interval"]] for line in lines])


def _around(means: Sequence[float], spans: Sequence[Sequence[float] | None]) -> list[list[float]]:
    """Return each interval's extent below and above its mean; zero without an interval."""
    ends = [span or (mean, mean) for mean, span in zip(means, spans, strict=True)]
    below = [max(0.0, mean - low) for mean, (low, _) in zip(means, ends, strict=True)]
    above = [max(0.0, high - mean) for mean, (_, high) in zip(means, ends, strict=True)]
    return [below, above]


PLOTS: dict[str, tuple[Draw, tuple[float, float]]] = {
    "controlled": (_controlled, INCHES),
    "families": (_families, TALL),
    "ablation": (_ablation, INCHES),
    "curve": (_curve, INCHES),
    "distances": (_distances, INCHES),
    "gates": (_gates, INCHES),
}
