"""A training run's curves as a picture.

python benchmarks/small_curves.py [LOG] [--output docs/images/small-training.svg]

Without LOG, those of the model in the package (`training.jsonl` beside its weights).
"""

import argparse
from itertools import groupby
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from aviot.bundled import embedded_model
from aviot.utils.journal import read_rows
from aviot_lab.demo_model.export import CURVES

LOSSES = {"patches": "patches", "naming": "names", "language": "answers", "told": "histories", "recalled": "recalls"}
LOSSES |= {"chosen": "options", "sought": "relevance"}
LOSSES |= {"allotted": "allotment (weighed)", "transport": "transport (weighed)"}
SHARES = {
    "told_right": "histories",
    "recalled_right": "recalls",
    "chosen_right": "options",
    "sought_right": "relevance",
    "allotted_right": "allotment",
}
SMOOTH = 5  # lines of twenty steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, nargs="?", default=embedded_model() / CURVES)
    parser.add_argument("--output", type=Path, default=Path("docs/images/small-training.svg"))
    given = parser.parse_args()
    lines = read_rows(given.log)
    steps = [line for line in lines if "task" in line]
    with matplotlib.rc_context({"svg.hashsalt": "aviot", "font.size": 8}):
        figure = Figure(figsize=(7.5, 6.0), layout="constrained")
        losses, shares = figure.subplots(2, 1, sharex=True)
        _phases(losses, steps)
        _phases(shares, steps)
        _draw(losses, steps, LOSSES, 1)
        losses.set_yscale("log")
        losses.set_ylabel("loss")
        losses.legend(ncols=4, fontsize=7)
        _draw(shares, steps, SHARES, 100)
        for title, points in _evaluated(lines).items():
            shares.plot(*zip(*points, strict=True), marker="o", markersize=3, linestyle=":", label=title)
        shares.set_ylabel("right, %")
        shares.set_xlabel("step")
        shares.legend(ncols=3, fontsize=7)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(given.output, format="svg", metadata={"Date": None})
    print(given.output)


def _draw(panel, steps, titles, scale):
    """Every curve that the run has."""
    for name, title in titles.items():
        at, values = _smooth(steps, name, scale)
        if at:
            panel.plot(at, values, linewidth=0.9, label=title)


def _smooth(steps, name, scale):
    """Means of a few lines each; losses that no batch of a line had are not in it."""
    at, values = [], []
    for start in range(0, len(steps), SMOOTH):
        found = [line[name] for line in steps[start : start + SMOOTH] if line.get(name)]
        if found:
            at.append(steps[min(start + SMOOTH, len(steps)) - 1]["step"])
            values.append(scale * sum(found) / len(found))
    return at, values


def _phases(panel, steps):
    for number, (task, lines) in enumerate(groupby(steps, lambda line: line["task"])):
        at = [line["step"] for line in lines]
        panel.axvspan(at[0], at[-1], alpha=0.06 * (number % 2), color="black", linewidth=0)
        panel.text(at[0], 1.0, task, transform=panel.get_xaxis_transform(), va="bottom", fontsize=7)


def _evaluated(lines):
    """Held-out questions about 64 frames, by how they were compressed."""
    found = {}
    for line in (line for line in lines if line.get("frames") == 64):
        title = line["compressor"] if line["ratio"] is None else f"{line['compressor']}, ratio {line['ratio']:g}"
        found.setdefault(f"validation, {title}", []).append((line["step"], 100 * line["right"]))
    return found


if __name__ == "__main__":
    main()
