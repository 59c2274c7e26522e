"""The suite's report: its data, and its Markdown, JSON and plot files."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.evaluation.intervals import Interval
from aviot.evaluation.report import markdown_text
from aviot.evaluation.suite.comparison import Line, SettingDifference, sweep
from aviot.models.checkpoint import read_source
from aviot.utils.files import write_durably
from aviot.utils.printing import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "\u2013"
"""What tables say where there is no figure."""


# The paper's backbone and its table of the final configuration.
_TEXT = {"hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944}
_VISION = {"hidden_size": 1152, "image_size": 384, "patch_size": 14}
_COMPRESSOR = {"cost_dim": 256}
_HEADINGS = ("benchmark", "setting", "{}", "95 % interval", "paper", "difference", "its interval", "items", "failed")
_FOOT = (
    "Scores are percentages with 95 % intervals by video (Wilson's, for as many independent questions as these are "
    "worth), replies read by aviot's rules; a question that could not be asked is wrong. The paper gives no interval: "
    "a difference's is ours, moved by its figure. For the harness's own scoring run lmms-eval."
)
OURS, PAPER = "#2166ac", "#b2182b"
MARKDOWN, JSON = "suite.md", "suite.json"


@dataclass(frozen=True)
class Model:
    """What figures are of: whether it may be the paper's model, and the sentence that stands over every table."""

    may_be_the_papers: bool
    sentence: str


@dataclass(frozen=True)
class Missing:
    """A benchmark that was not run, why, and what the paper says for the first setting."""

    benchmark: str
    title: str
    reason: str
    paper: str


@dataclass(frozen=True)
class SuiteReport:
    """All figures of a suite, and what is not among them; `limit` is the number of questions asked per benchmark."""

    model: Model
    sampling: str
    lines: tuple[Line, ...]
    missing: tuple[Missing, ...]
    differences: tuple[SettingDifference, ...] = ()
    limit: int | None = None
    caveats: tuple[str, ...] = ()


def about_model(folder: Path) -> Model:
    """Compare a checkpoint's sizes with the paper's."""
    config = read_source(folder).config
    parts = (
        ("decoder", config.text_config, _TEXT),
        ("encoder", config.vision_config, _VISION),
        ("compressor", config.compressor, _COMPRESSOR),
    )
    unlike = [
        f"{name} {field} {getattr(part, field)} instead of {value}"
        for name, part, wanted in parts
        for field, value in wanted.items()
        if getattr(part, field) != value
    ]
    if unlike:
        return Model(
            False,
            f"This model is not the paper's ({', '.join(unlike)}): its figures are no measure of this one.",
        )
    return Model(
        True,
        "This model has the paper's sizes; whether its weights are the paper's is not known here. Their hashes are in "
        "each run's manifest.json.",
    )


def as_markdown(report: SuiteReport) -> str:
    """Everything: whose model, figures, parts, what is missing, and where the paper's figures stand."""
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
        yield from ("", "## Between settings", "", *_between(report.differences))
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


def _table(lines: Sequence[Line], report: SuiteReport) -> Iterator[str]:
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


def _between(lines: Sequence[SettingDifference]) -> Iterator[str]:
    """Return the paired differences between settings, in points."""
    yield "| benchmark | setting | minus | points | 95 % interval | items | videos |"
    yield f"| --- | --- | --- |{' ---: |' * 4}"
    for line in lines:
        figures = (_number(line.difference, signed=True), _range(line.interval, signed=True))
        cells = (line.title, line.setting, line.against, *figures, str(line.counted), str(line.videos))
        yield f"| {' | '.join(cells)} |"


def _notes(lines: Sequence[Line]) -> dict[str, int]:
    """Notes by number, in the order in which they come up."""
    return {note: number for number, note in enumerate(dict.fromkeys(n for line in lines for n in line.notes), 1)}


def _number(value: float | None, *, signed: bool = False) -> str:
    return NOTHING if value is None else format(value, "+.2f" if signed else ".2f")


def _range(interval: Interval | None, *, signed: bool = False) -> str:
    return NOTHING if interval is None else " to ".join(_number(end, signed=signed) for end in interval)


def _draw(report: SuiteReport, folder: Path) -> None:
    """Scores of every benchmark and setting, and scores over the ratio."""
    lines = [line for line in report.lines if line.part is None and line.score is not None]
    if not lines:
        return
    pictures = {"scores.png": _scores(lines, report), "ratios.png": _ratios(lines, report)}
    for name, picture in pictures.items():
        picture.savefig(folder / name, dpi=150)


def _scores(lines: Sequence[Line], report: SuiteReport) -> "Figure":
    """A point with its interval a line, and the paper's beside it."""
    from matplotlib.figure import Figure

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


def _ratios(lines: Sequence[Line], report: SuiteReport) -> "Figure":
    """A small picture a benchmark: the paper's sweep, and our figures of AVIOT."""
    from matplotlib.figure import Figure

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


def _told(picture: "Figure", report: SuiteReport) -> "Figure":
    """With whose model it is, and a legend."""
    whose = "sizes of the paper's model" if report.model.may_be_the_papers else "not the paper's model"
    picture.suptitle(f"{whose}; {report.sampling}", fontsize=9)
    picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return picture


def as_json(report: SuiteReport) -> dict[str, Any]:
    """The whole report as JSON knows it."""
    return asdict(report)


def write_report(report: SuiteReport, folder: Path) -> bool:
    """Write everything; without matplotlib there are no plots. Whether it was not there yet."""
    data = json_text(as_json(report), indent=2).encode() + b"\n"
    is_new = not (folder / JSON).is_file() or (folder / JSON).read_bytes() != data
    write_durably(folder / MARKDOWN, as_markdown(report).encode())
    write_durably(folder / JSON, data)
    try:
        _draw(report, folder)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
    return is_new
