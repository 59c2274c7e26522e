"""A run's figures beside the paper's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aviot.evaluation.benchmarks.benchmark import Benchmark
from aviot.evaluation.config import Setting
from aviot.evaluation.intervals import Interval, wilson
from aviot.evaluation.rows import has_failed
from aviot.evaluation.suite.reference import UNCOMPRESSED, figure
from aviot.journal import Row


@dataclass(frozen=True)
class Line:
    """One figure in percent of a benchmark, or of a part of one, beside what the paper says.

    The interval of the difference is ours moved by the paper's figure: the paper tells no interval of its own.
    """

    benchmark: str
    title: str
    part: str | None
    setting: str
    ratio: float | None
    score: float | None
    interval: Interval | None
    counted: int
    answered: int
    failed: int
    without_answer: int
    paper: float | None
    source: str | None
    difference: float | None
    difference_interval: Interval | None
    notes: tuple[str, ...] = ()


def compare(benchmark: Benchmark, rows: Sequence[Row], sampling: str) -> list[Line]:
    """The benchmark as a whole with every setting, then its parts where it has several."""
    settings = {row["setting"]: Setting(row["compressor"], row["ratio"]) for row in rows}
    whole = [
        _line(benchmark, None, [row for row in rows if row["setting"] == name], setting, sampling)
        for name, setting in settings.items()
    ]
    return [*whole, *_parts(benchmark, rows, settings, sampling)]


def _parts(benchmark: Benchmark, rows: Sequence[Row], settings: dict[str, Setting], sampling: str) -> Iterator[Line]:
    if len(benchmark.parts) == 1:
        return
    for part in benchmark.parts:
        for name, setting in settings.items():
            mine = [row for row in rows if row["setting"] == name and row["part"] == part.name]
            if mine:
                yield _line(benchmark, part.name, mine, setting, sampling)


def _line(benchmark: Benchmark, part: str | None, rows: Sequence[Row], setting: Setting, sampling: str) -> Line:
    counted = part or benchmark.counted
    mine = [row for row in rows if counted is None or row["part"] == counted]
    failed = [row for row in mine if has_failed(row)]
    scored = [row for row in mine if row["correct"] is not None]
    judged = [row for row in scored if "judge" in row or has_failed(row)]
    by_judge = any("judge" in row for row in judged)
    right = [_is_right(row) for row in (judged if by_judge else scored) if "unjudged" not in row.get("judge", {})]
    score = 100 * sum(right) / len(right) if right else None
    ends = wilson(sum(right), len(right))
    interval = None if ends is None else (100 * ends[0], 100 * ends[1])
    said = figure(benchmark.name, sampling, setting, part)
    return Line(
        benchmark=benchmark.name,
        title=benchmark.title,
        part=part,
        setting=setting.name,
        ratio=setting.ratio,
        score=score,
        interval=interval,
        counted=len(right),
        answered=len(mine) - len(failed),
        failed=len(failed),
        without_answer=len(mine) - len(scored),
        paper=None if said is None else said.score,
        source=None if said is None else said.source,
        difference=None if said is None or score is None else score - said.score,
        difference_interval=None
        if said is None or interval is None
        else (interval[0] - said.score, interval[1] - said.score),
        notes=tuple(_notes(benchmark, part, mine, setting, by_judge=by_judge)),
    )


def _is_right(row: Row) -> bool:
    return bool(row.get("judge", row)["correct"])


def _notes(
    benchmark: Benchmark, part: str | None, rows: Sequence[Row], setting: Setting, *, by_judge: bool
) -> Iterator[str]:
    """What keeps a figure from being compared as it stands."""
    if setting.ratio is None:
        yield UNCOMPRESSED
    if benchmark.name == "activitynetqa" and not by_judge:
        yield "exact match; the paper's figure is a GPT-4o judge's (--judge)"
    failed = [row for row in rows if has_failed(row)]
    if failed and part is None:
        yield (
            f"{len(failed)} of {len(rows)} questions could not be asked, like {failed[0]['id']}: "
            f"{failed[0]['reason']}; {benchmark.name}/summary.json has all"
        )
    unjudged = sum("unjudged" in row.get("judge", {}) for row in rows)
    if unjudged:
        yield f"{unjudged} of {len(rows)} answers were not judged and are not in the figure; --resume asks again"
    if any(row["correct"] is None for row in rows):
        yield "records without answer are not scored; where the benchmark keeps its answers, submit the predictions"
    if part is None and benchmark.name == "tempcompass":
        yield "the multi-choice part, as in the paper; caption matching and captioning are left to lmms-eval"
    elif part is None and len(benchmark.parts) > 1:
        there = {row["part"] for row in rows}
        if len(there) < len(benchmark.parts):
            yield f"{len(there)} of {len(benchmark.parts)} parts: the folder holds only {', '.join(sorted(there))}"
