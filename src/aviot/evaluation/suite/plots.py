"""The suite's figures drawn: ours beside the paper's."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from aviot.evaluation.suite.comparison import Line
from aviot.evaluation.suite.reference import sweep
from aviot.evaluation.suite.report import SuiteReport

OURS, PAPER = "#2166ac", "#b2182b"


def draw(report: SuiteReport, folder: Path) -> None:
    """Scores of every benchmark and setting, and scores over the ratio."""
    lines = [line for line in report.lines if line.part is None and line.score is not None]
    if not lines:
        return
    pictures = {"scores.png": _scores(lines, report), "ratios.png": _ratios(lines, report)}
    for name, picture in pictures.items():
        picture.savefig(folder / name, dpi=150)


def _scores(lines: Sequence[Line], report: SuiteReport) -> Figure:
    """A point with its interval a line, and the paper's beside it."""
    picture = Figure(figsize=(8, 1.6 + 0.32 * len(lines)), layout="constrained")
    axes = picture.subplots()
    places = range(len(lines))
    scores = [line.score or 0.0 for line in lines]
    below = [score - line.interval[0] if line.interval else 0.0 for score, line in zip(scores, lines, strict=True)]
    above = [line.interval[1] - score if line.interval else 0.0 for score, line in zip(scores, lines, strict=True)]
    axes.errorbar(scores, places, xerr=(below, above), fmt="o", color=OURS, label="this model, 95 %")
    said = [(line.paper, place) for place, line in enumerate(lines) if line.paper is not None]
    axes.scatter([score for score, _ in said], [place for _, place in said], marker="D", color=PAPER, label="paper")
    axes.set_yticks(places, [f"{line.title}, {line.setting}" for line in lines])
    axes.invert_yaxis()
    axes.set_xlabel("score, %")
    return _told(picture, report)


def _ratios(lines: Sequence[Line], report: SuiteReport) -> Figure:
    """A small picture a benchmark: the paper's sweep, and our figures of AVIOT."""
    names = list(dict.fromkeys(line.benchmark for line in lines))
    columns = min(len(names), 5)
    rows = -(-len(names) // columns)
    picture = Figure(figsize=(2.6 * columns + 1, 2.3 * rows + 0.8), layout="constrained")
    for axes, name in zip(picture.subplots(rows, columns, squeeze=False).flat, names, strict=False):
        said = list(sweep(name, report.sampling))
        axes.plot([ratio for ratio, _ in said], [score for _, score in said], ".-", color=PAPER, label="paper")
        mine = [line for line in lines if line.benchmark == name and line.ratio and line.setting.startswith("aviot@")]
        axes.plot([line.ratio for line in mine], [line.score for line in mine], "o-", color=OURS, label="this model")
        axes.set_title(next(line.title for line in lines if line.benchmark == name), fontsize=9)
        axes.set_xlabel("compression ratio", fontsize=8)
    return _told(picture, report)


def _told(picture: Figure, report: SuiteReport) -> Figure:
    """With whose model it is, and a legend."""
    whose = "sizes of the paper's model" if report.model.may_be_the_papers else "not the paper's model"
    picture.suptitle(f"{whose}; {report.sampling}", fontsize=9)
    picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return picture
