"""Scores of a run next to those of the paper."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from aviot.evaluation.benchmarks.benchmark import Benchmark
from aviot.evaluation.config import Setting
from aviot.evaluation.intervals import Interval
from aviot.evaluation.measures import Difference, Scored, differences, measure
from aviot.evaluation.results import has_failed
from aviot.utils.journal import Row

DENSE = {"fps": 2.0, "max_frames": 224}
FIXED = {"frames": 64}
TABLE_RATIO = 4.0
"""Of the paper's table of models."""

CONTROLLED_RATIOS = (2.0, 4.0, 10.0)
"""Of its controlled comparison."""

UNCOMPRESSED = "the paper's uncompressed row is LLaVA-Video-7B, another checkpoint"
_FILE = Path(__file__).parent / "paper.json"


@dataclass(frozen=True)
class Figure:
    """A percentage that the paper prints, and where."""

    score: float
    source: str


@cache
def tables() -> list[dict[str, Any]]:
    """The paper's tables."""
    stored: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return list(stored["tables"])


def sampling_name(sampling: Mapping[str, Any]) -> str:
    """A way of taking frames, as the tables name it."""
    if sampling.get("frames") is not None:
        return f"frames={sampling['frames']}"
    return f"fps={sampling.get('fps'):g},max_frames={sampling.get('max_frames')}"


def figure(benchmark: str, sampling: str, setting: Setting, part: str | None = None) -> Figure | None:
    """What the paper says for a setting: of a whole benchmark, or of a part of one."""
    for table in tables():
        if table["sampling"] != sampling or table.get("benchmark") != (benchmark if part else None):
            continue
        ratio = "" if setting.ratio is None else f"{setting.ratio:g}"
        score = table["scores"].get(setting.compressor, {}).get(ratio, {}).get(part or benchmark)
        if score is not None:
            return Figure(score, f"{table['title']} ({table['label']})")
    return None


def sweep(benchmark: str, sampling: str) -> Iterator[tuple[float, float]]:
    """Ratio and score of AVIOT wherever the paper gives them, ratios rising."""
    found: dict[float, float] = {}
    for table in tables():
        if table["sampling"] == sampling and "benchmark" not in table:
            for ratio, scores in table["scores"].get("aviot", {}).items():
                if benchmark in scores:
                    found[float(ratio)] = scores[benchmark]
    yield from sorted(found.items())


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
    videos: int = 0


@dataclass(frozen=True)
class SettingDifference:
    """A setting's score minus another's on the same questions of a benchmark, in points."""

    benchmark: str
    title: str
    setting: str
    against: str
    difference: float
    interval: Interval | None
    counted: int
    videos: int


def compare(benchmark: Benchmark, rows: Sequence[Row], sampling: str, *, is_limited: bool = False) -> list[Line]:
    """Return the benchmark as a whole with every setting, then its parts where it has several."""
    settings = {row["setting"]: Setting(row["compressor"], row["ratio"]) for row in rows}
    whole = [
        _line(benchmark, None, [row for row in rows if row["setting"] == name], setting, sampling)
        for name, setting in settings.items()
    ]
    noted = [replace(line, notes=(*line.notes, *_absent(benchmark, rows, is_limited=is_limited))) for line in whole]
    return [*noted, *_parts(benchmark, rows, settings, sampling)]


def compare_settings(benchmark: Benchmark, rows: Sequence[Row]) -> list[SettingDifference]:
    """Return the paired differences of a benchmark's settings from the uncompressed one, or from the first."""
    by_setting: dict[str, list[Row]] = {}
    for row in _counted(benchmark, None, rows):
        by_setting.setdefault(row["setting"], []).append(row)
    found = [each for mine in by_setting.values() if (each := _scored(mine)).values]
    return [_in_points(benchmark, each) for each in differences(found)]


def _in_points(benchmark: Benchmark, of: Difference) -> SettingDifference:
    return SettingDifference(
        benchmark=benchmark.name,
        title=benchmark.title,
        setting=of.setting,
        against=of.against,
        difference=100 * of.value,
        interval=_percent(of.interval),
        counted=of.counted,
        videos=of.videos,
    )


def _parts(benchmark: Benchmark, rows: Sequence[Row], settings: dict[str, Setting], sampling: str) -> Iterator[Line]:
    if len(benchmark.parts) == 1:
        return
    for part in benchmark.parts:
        for name, setting in settings.items():
            mine = [row for row in rows if row["setting"] == name and row["part"] == part.name]
            if mine:
                yield _line(benchmark, part.name, mine, setting, sampling)


def _counted(benchmark: Benchmark, part: str | None, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are in the figure of a benchmark or of a part of one."""
    counted = part or benchmark.counted
    return [row for row in rows if counted is None or row["part"] == counted]


def _by_judge(rows: Sequence[Row]) -> bool:
    return any("judge" in row for row in rows if row["correct"] is not None)


def _scored(rows: Sequence[Row]) -> Scored:
    """Return what one setting's rows score: by the judge where there is one, else by aviot's rules."""
    scored = [row for row in rows if row["correct"] is not None]
    if _by_judge(rows):
        scored = [row for row in scored if "judge" in row or has_failed(row)]
    known = [row for row in scored if "unjudged" not in row.get("judge", {})]
    setting = rows[0]["setting"]
    return Scored.of("score", known, map(_is_right, known)) if known else Scored(setting, "score", {}, {})


def _percent(interval: Interval | None) -> Interval | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])


def _line(benchmark: Benchmark, part: str | None, rows: Sequence[Row], setting: Setting, sampling: str) -> Line:
    mine = _counted(benchmark, part, rows)
    failed = [row for row in mine if has_failed(row)]
    found = measure(_scored(mine)) if mine else None
    score = None if found is None or found.value is None else 100 * found.value
    interval = None if found is None else _percent(found.interval)
    said = figure(benchmark.name, sampling, setting, part)
    return Line(
        benchmark=benchmark.name,
        title=benchmark.title,
        part=part,
        setting=setting.name,
        ratio=setting.ratio,
        score=score,
        interval=interval,
        counted=0 if found is None else found.counted,
        answered=len(mine) - len(failed),
        failed=len(failed),
        without_answer=sum(row["correct"] is None for row in mine),
        paper=None if said is None else said.score,
        source=None if said is None else said.source,
        difference=None if said is None or score is None else score - said.score,
        difference_interval=None
        if said is None or interval is None
        else (interval[0] - said.score, interval[1] - said.score),
        notes=tuple(_notes(benchmark, part, mine, setting)),
        videos=0 if found is None else found.videos,
    )


def _is_right(row: Row) -> bool:
    return bool(row.get("judge", row)["correct"])


def _notes(benchmark: Benchmark, part: str | None, rows: Sequence[Row], setting: Setting) -> Iterator[str]:
    """Return what keeps a figure from being compared as it stands."""
    if setting.ratio is None:
        yield UNCOMPRESSED
    if benchmark.name == "activitynetqa" and not _by_judge(rows):
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
    damaged = {row["video"] for row in rows if "damage" in row}
    if damaged and part is None:
        yield f"damaged videos: {len(damaged)}; {benchmark.name}/summary.json lists them"


def _absent(benchmark: Benchmark, rows: Sequence[Row], *, is_limited: bool) -> Iterator[str]:
    """Return which parts of a benchmark are not in its figure."""
    if benchmark.name == "tempcompass":
        yield "the multi-choice part, as in the paper; caption matching and captioning are left to lmms-eval"
    elif len(benchmark.parts) > 1:
        there = {row["part"] for row in rows}
        if len(there) < len(benchmark.parts):
            why = "the limit leaves only" if is_limited else "the folder holds only"
            yield f"{len(there)} of {len(benchmark.parts)} parts: {why} {', '.join(sorted(there))}"
