"""The suite's report: its data, and its Markdown, JSON and plot files."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.backbones import registry
from aviot.backbones.checkpoints.adapter import Adapter, is_adapter
from aviot.backbones.llava_video.backbone import LlavaVideo
from aviot.backbones.llava_video.checkpoint import read_checkpoint_folder
from aviot.evaluation.intervals import Interval
from aviot.evaluation.report import markdown_text
from aviot.evaluation.suite.comparison import BenchmarkScore, SettingDifference, paper_sweep
from aviot.utils.files import has_content, write_durably
from aviot.utils.printing import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "\u2013"
"""Cell of a table without a value."""


# The paper's backbone and its table of the final configuration.
_TEXT = {"hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944}
_VISION = {"hidden_size": 1152, "image_size": 384, "patch_size": 14}
_COMPRESSOR = {"cost_dim": 256}
_HEADINGS = ("benchmark", "setting", "{}", "95 % interval", "paper", "difference", "its interval", "items", "failed")
_FOOT = (
    "Scores are percentages with 95 % intervals clustered by video (Wilson's, with the effective number of questions); "
    "aviot's rules read the replies, and a question that could not be asked is wrong. The paper gives no intervals: "
    "the interval of a difference is ours, shifted by the paper's score. For lmms-eval's own scoring run lmms-eval."
)
OURS, PAPER = "#2166ac", "#b2182b"
MARKDOWN, JSON = "suite.md", "suite.json"


@dataclass(frozen=True)
class ModelMatch:
    """The comparison of a checkpoint with the paper's model, and the sentence on it above every table."""

    may_be_the_papers: bool
    sentence: str


@dataclass(frozen=True)
class NotRun:
    """A benchmark that was not run, the reason, and the paper's score under the first setting."""

    benchmark: str
    title: str
    reason: str
    paper: str


@dataclass(frozen=True)
class SuiteReport:
    """All scores of a suite, and the benchmarks without one; `limit` is the number of questions per benchmark."""

    model: ModelMatch
    sampling: str
    lines: tuple[BenchmarkScore, ...]
    missing: tuple[NotRun, ...]
    differences: tuple[SettingDifference, ...] = ()
    limit: int | None = None
    caveats: tuple[str, ...] = ()


def _other_model(difference: str) -> ModelMatch:
    return ModelMatch(False, f"This model is not the paper's ({difference}): the paper's scores do not apply to it.")


def match_model(folder: Path) -> ModelMatch:
    """Compare a checkpoint's family and sizes with those of the paper's model."""
    family = Adapter.read(folder).base.family if is_adapter(folder) else registry.family_of(folder).family
    if family != LlavaVideo.family:
        return _other_model(f"{family} instead of {LlavaVideo.family}")
    config = read_checkpoint_folder(folder).config
    parts = (
        ("decoder", config.text_config, _TEXT),
        ("encoder", config.vision_config, _VISION),
        ("compressor", config.compressor, _COMPRESSOR),
    )
    different = [
        f"{name} {field} {getattr(part, field)} instead of {value}"
        for name, part, wanted in parts
        for field, value in wanted.items()
        if getattr(part, field) != value
    ]
    if different:
        return _other_model(", ".join(different))
    return ModelMatch(
        True,
        "This model has the paper's sizes; whether it has the paper's weights is unknown. Each run's manifest.json has "
        "their hashes.",
    )


def as_markdown(report: SuiteReport) -> str:
    """Return the report as Markdown: model, scores, parts, differences, missing benchmarks, notes and sources."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: SuiteReport) -> Iterator[str]:
    yield "# The paper's benchmarks"
    yield ""
    yield f"**{report.model.sentence}** Frames: {report.sampling}."
    if report.limit is not None:
        yield f"Only the first {report.limit} questions of each benchmark were asked."
    whole = [line for line in report.lines if line.part is None]
    if whole:
        yield from ("", *_table(whole, report))
    parts = [line for line in report.lines if line.part is not None]
    if parts:
        yield from ("", "## Parts", "", *_table(parts, report))
    if report.differences:
        yield from ("", "## Between settings", "", *_difference_table(report.differences))
    if report.missing:
        yield from ("", "## Not run", "", "| benchmark | why | paper |", "| --- | --- | ---: |")
        yield from (f"| {each.title} | {markdown_text(each.reason)} | {each.paper} |" for each in report.missing)
    notes = _notes(report.lines)
    if notes:
        yield ""
        yield from (f"{number}. {markdown_text(note)}" for note, number in notes.items())
    yield ""
    yield _FOOT
    yield from (f"Note: {caveat}." for caveat in report.caveats)
    sources = list(dict.fromkeys(line.source for line in report.lines if line.source))
    if sources:
        yield f"The paper's figures: {'; '.join(sources)}."


def _table(lines: Sequence[BenchmarkScore], report: SuiteReport) -> Iterator[str]:
    numbers = _notes(report.lines)
    score = "score" if report.model.may_be_the_papers else "score (not the paper's model)"
    yield f"| {' | '.join(_HEADINGS).format(score)} |"
    yield f"| --- | --- |{' ---: |' * (len(_HEADINGS) - 2)}"
    for line in lines:
        marks = "".join(f" [{numbers[note]}]" for note in line.notes)
        name = f"{line.title}: {markdown_text(line.part)}" if line.part else line.title
        cells = (
            name + marks,
            line.setting,
            _number(line.score),
            _range(line.interval),
            _number(line.paper),
            _number(line.difference, signed=True),
            _range(line.difference_interval, signed=True),
            str(line.counted),
            str(line.failed),
        )
        yield f"| {' | '.join(cells)} |"


def _difference_table(lines: Sequence[SettingDifference]) -> Iterator[str]:
    """Yield the table of paired differences between settings, in percentage points."""
    yield "| benchmark | setting | minus | points | 95 % interval | items | videos |"
    yield f"| --- | --- | --- |{' ---: |' * 4}"
    for line in lines:
        figures = (_number(line.difference, signed=True), _range(line.interval, signed=True))
        cells = (line.title, line.setting, line.against, *figures, str(line.counted), str(line.videos))
        yield f"| {' | '.join(cells)} |"


def _notes(lines: Sequence[BenchmarkScore]) -> dict[str, int]:
    """Return the footnote number of each note, in order of appearance."""
    return {note: number for number, note in enumerate(dict.fromkeys(n for line in lines for n in line.notes), 1)}


def _number(value: float | None, *, signed: bool = False) -> str:
    return NOTHING if value is None else format(value, "+.2f" if signed else ".2f")


def _range(interval: Interval | None, *, signed: bool = False) -> str:
    return NOTHING if interval is None else " to ".join(_number(end, signed=signed) for end in interval)


def _draw(report: SuiteReport, folder: Path) -> None:
    """Draw the scores of every benchmark and setting, and the scores by ratio."""
    lines = [line for line in report.lines if line.part is None and line.score is not None]
    if not lines:
        return
    figures = {"scores.png": _scores(lines, report), "ratios.png": _ratios(lines, report)}
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=150)


def _scores(lines: Sequence[BenchmarkScore], report: SuiteReport) -> "Figure":
    """Return a plot with one line per score: its interval, and the paper's score."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.6 + 0.32 * len(lines)), layout="constrained")
    axes = figure.subplots()
    places = range(len(lines))
    scores = [line.score or 0.0 for line in lines]
    below = [score - line.interval[0] if line.interval else 0.0 for score, line in zip(scores, lines, strict=True)]
    above = [line.interval[1] - score if line.interval else 0.0 for score, line in zip(scores, lines, strict=True)]
    axes.errorbar(scores, places, xerr=(below, above), fmt="o", color=OURS, label="this model, 95 %")
    paper = [(line.paper, place) for place, line in enumerate(lines) if line.paper is not None]
    axes.scatter([score for score, _ in paper], [place for _, place in paper], marker="D", color=PAPER, label="paper")
    axes.set_yticks(places, [f"{line.title}, {line.setting}" for line in lines])
    axes.invert_yaxis()
    axes.set_xlabel("score, %")
    return _with_title(figure, report)


def _ratios(lines: Sequence[BenchmarkScore], report: SuiteReport) -> "Figure":
    """Return one plot per benchmark: AVIOT's score by ratio, the paper's and ours."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.benchmark for line in lines))
    columns = min(len(names), 5)
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(2.6 * columns + 1, 2.3 * rows + 0.8), layout="constrained")
    for axes, name in zip(figure.subplots(rows, columns, squeeze=False).flat, names, strict=False):
        paper = list(paper_sweep(name, report.sampling))
        axes.plot([ratio for ratio, _ in paper], [score for _, score in paper], ".-", color=PAPER, label="paper")
        ours = [line for line in lines if line.benchmark == name and line.ratio and line.setting.startswith("aviot@")]
        axes.plot([line.ratio for line in ours], [line.score for line in ours], "o-", color=OURS, label="this model")
        axes.set_title(next(line.title for line in lines if line.benchmark == name), fontsize=9)
        axes.set_xlabel("compression ratio", fontsize=8)
    return _with_title(figure, report)


def _with_title(figure: "Figure", report: SuiteReport) -> "Figure":
    """Return a figure with a title that says whose model it shows, and a legend."""
    whose = "sizes of the paper's model" if report.model.may_be_the_papers else "not the paper's model"
    figure.suptitle(f"{whose}; {report.sampling}", fontsize=9)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def as_dict(report: SuiteReport) -> dict[str, Any]:
    """Return the report as plain values for JSON."""
    return asdict(report)


def write_report(report: SuiteReport, folder: Path) -> bool:
    """Write all files, plots only with matplotlib; return whether the report is new or has changed."""
    data = json_text(as_dict(report), indent=2).encode() + b"\n"
    is_new = not has_content(folder / JSON, data)
    write_durably(folder / MARKDOWN, as_markdown(report).encode())
    write_durably(folder / JSON, data)
    try:
        _draw(report, folder)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
    return is_new
