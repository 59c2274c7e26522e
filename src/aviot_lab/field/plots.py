"""Plots of a field experiment: accuracy over tokens and over time, with the methods that no other dominates."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aviot_lab.reproduce.plots import svg_of

INCHES = (7.5, 5.0)
MARKERS = "osD^v<>pP*Xh"


def draw_field(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return two plots per model as SVG, by name."""
    drawn = {}
    for name, found in figures.items():
        drawn[f"{name}-accuracy"] = svg_of(
            partial(_over, found, "entered", "visual tokens entering the decoder"), INCHES
        )
        drawn[f"{name}-time"] = svg_of(partial(_over, found, "first token", "first token, ms"), INCHES)
    return drawn


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none beats in both cost (first, lower is better) and accuracy (second), by cost."""
    front: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or accuracy > front[-1][1]:
            front.append((cost, accuracy))
    return front


def _over(figures: Mapping[str, Any], cost: str, label: str, panel: Any) -> None:
    """Draw a line per method over its budgets, and the Pareto front of all; methods inside the decoder are dashed."""
    whole, every = figures["uncompressed"], []
    if "refused" not in whole:
        panel.axhline(100 * whole["accuracy"], color="0.3", linewidth=1, label="uncompressed")
    for number, name in enumerate(dict.fromkeys(line["method"] for line in figures["lines"])):
        mine = [line for line in figures["lines"] if line["method"] == name and "refused" not in line]
        if not mine:
            continue
        points = [(_cost(line, cost), 100 * line["accuracy"]) for line in mine]
        every += points
        style = "--" if mine[0]["inside"] else "-"
        panel.plot(
            *zip(*points, strict=True),
            style,
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            linewidth=0.9,
            color=f"C{number % 10}",
            label=name,
        )
    front = pareto_front(every)
    if front:
        panel.step(*zip(*front, strict=True), where="post", color="0.2", linewidth=4, alpha=0.2, label="Pareto front")
    panel.set_xscale("log")
    panel.set_xlabel(label)
    panel.set_ylabel("right, %")
    panel.legend(fontsize=6, ncols=2)


def _cost(line: Mapping[str, Any], cost: str) -> float:
    """Return the tokens or milliseconds of a line; of a method inside the decoder, the tokens that it leaves."""
    if cost == "entered":
        return line["left"] if line["inside"] else line["entered"]
    return line["milliseconds"][cost]
