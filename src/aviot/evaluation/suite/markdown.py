"""The suite's table for people, as Markdown."""

from collections.abc import Iterator, Sequence

from aviot.evaluation.export import markdown_text
from aviot.evaluation.intervals import Interval
from aviot.evaluation.suite.comparison import Line, SettingDifference
from aviot.evaluation.suite.report import NOTHING, SuiteReport

_HEADINGS = ("benchmark", "setting", "{}", "95 % interval", "paper", "difference", "its interval", "items", "failed")
_FOOT = (
    "Scores are percentages with 95 % intervals by video (Wilson's, for as many independent questions as these are "
    "worth), replies read by aviot's rules; a question that could not be asked is wrong. The paper gives no interval: "
    "a difference's is ours, moved by its figure. For the harness's own scoring run lmms-eval."
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
