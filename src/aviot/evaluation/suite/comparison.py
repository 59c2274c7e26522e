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
from aviot.evaluation.measures import Difference, ItemScores, mean_score, paired_differences
from aviot.evaluation.results import has_failed
from aviot.utils.journal import Row

DENSE = {"fps": 2.0, "max_frames": 224}
FIXED = {"frames": 64}
TABLE_RATIO = 4.0
"""Ratio of the paper's table of models."""

CONTROLLED_RATIOS = (2.0, 4.0, 10.0)
"""Ratios of the paper's controlled comparison."""

UNCOMPRESSED_NOTE = "the paper's uncompressed row is LLaVA-Video-7B, another checkpoint"
_FILE = Path(__file__).parent / "paper.json"


@dataclass(frozen=True)
class PaperScore:
    """A percentage from the paper, and the table that it is from."""

    score: float
    source: str


@cache
def paper_tables() -> list[dict[str, Any]]:
    """Return the paper's tables."""
    stored: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return list(stored["tables"])


def sampling_name(sampling: Mapping[str, Any]) -> str:
    """Return the name of a frame sampling as the tables spell it; another mode than the tables' is part of it."""
    mode = f",{sampling['sampling']}" if "sampling" in sampling else ""
    if sampling.get("frames") is not None:
        return f"frames={sampling['frames']}{mode}"
    return f"fps={sampling.get('fps'):g},max_frames={sampling.get('max_frames')}{mode}"


def paper_score(benchmark: str, sampling: str, setting: Setting, part: str | None = None) -> PaperScore | None:
    """Return the paper's score of a benchmark, or of one of its parts, under a setting; None if it has none."""
    if setting.other is not None:
        return None
    for table in paper_tables():
        if table["sampling"] != sampling or table.get("benchmark") != (benchmark if part else None):
            continue
        ratio = "" if setting.ratio is None else f"{setting.ratio:g}"
        score = table["scores"].get(setting.method, {}).get(ratio, {}).get(part or benchmark)
        if score is not None:
            return PaperScore(score, f"{table['title']} ({table['label']})")
    return None


def paper_sweep(benchmark: str, sampling: str) -> Iterator[tuple[float, float]]:
    """Yield ratio and score of AVIOT in the paper, by increasing ratio."""
    found: dict[float, float] = {}
    for table in paper_tables():
        if table["sampling"] == sampling and "benchmark" not in table:
            for ratio, scores in table["scores"].get("aviot", {}).items():
                if benchmark in scores:
                    found[float(ratio)] = scores[benchmark]
    yield from sorted(found.items())


@dataclass(frozen=True)
class BenchmarkScore:
    """A setting's score on a benchmark, or on one of its parts, in percent, next to the paper's.

    The paper gives no interval, so the interval of the difference is that of our score, shifted by the paper's.
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
    """A setting's score minus another's on the same questions of a benchmark, in percentage points."""

    benchmark: str
    title: str
    setting: str
    against: str
    difference: float
    interval: Interval | None
    counted: int
    videos: int


def compare(
    benchmark: Benchmark, rows: Sequence[Row], sampling: str, *, is_limited: bool = False
) -> list[BenchmarkScore]:
    """Return the scores of every setting on the whole benchmark, then on each of its parts if it has several."""
    settings = {row["setting"]: Setting(row["method"], row["ratio"], row.get("other")) for row in rows}
    whole = [
        _score(benchmark, None, [row for row in rows if row["setting"] == name], setting, sampling)
        for name, setting in settings.items()
    ]
    noted = [
        replace(score, notes=(*score.notes, *_part_notes(benchmark, rows, is_limited=is_limited))) for score in whole
    ]
    return [*noted, *_part_scores(benchmark, rows, settings, sampling)]


def compare_settings(benchmark: Benchmark, rows: Sequence[Row]) -> list[SettingDifference]:
    """Return the paired difference of each setting from the uncompressed one, or from the first."""
    by_setting: dict[str, list[Row]] = {}
    for row in _scored_rows(benchmark, None, rows):
        by_setting.setdefault(row["setting"], []).append(row)
    scores = [each for of_setting in by_setting.values() if (each := _item_scores(of_setting)).values]
    return [_in_points(benchmark, each) for each in paired_differences(scores)]


def _in_points(benchmark: Benchmark, difference: Difference) -> SettingDifference:
    return SettingDifference(
        benchmark=benchmark.name,
        title=benchmark.title,
        setting=difference.setting,
        against=difference.against,
        difference=100 * difference.value,
        interval=_percent(difference.interval),
        counted=difference.counted,
        videos=difference.videos,
    )


def _part_scores(
    benchmark: Benchmark, rows: Sequence[Row], settings: dict[str, Setting], sampling: str
) -> Iterator[BenchmarkScore]:
    if len(benchmark.parts) == 1:
        return
    for part in benchmark.parts:
        for name, setting in settings.items():
            of_part = [row for row in rows if row["setting"] == name and row["part"] == part.name]
            if of_part:
                yield _score(benchmark, part.name, of_part, setting, sampling)


def _scored_rows(benchmark: Benchmark, part: str | None, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that enter the score of a benchmark or of one of its parts."""
    selected = part or benchmark.scored_part
    return [row for row in rows if selected is None or row["part"] == selected]


def _is_judged(rows: Sequence[Row]) -> bool:
    return any("judge" in row for row in rows if row["correct"] is not None)


def _item_scores(rows: Sequence[Row]) -> ItemScores:
    """Return the scores of one setting's rows: the judge's if there is one, else those of `score_reply`."""
    scored = [row for row in rows if row["correct"] is not None]
    if _is_judged(rows):
        scored = [row for row in scored if "judge" in row or has_failed(row)]
    known = [row for row in scored if "unjudged" not in row.get("judge", {})]
    setting = rows[0]["setting"]
    return ItemScores.of("score", known, map(_is_right, known)) if known else ItemScores(setting, "score", {}, {})


def _percent(interval: Interval | None) -> Interval | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])


def _score(
    benchmark: Benchmark, part: str | None, rows: Sequence[Row], setting: Setting, sampling: str
) -> BenchmarkScore:
    scored = _scored_rows(benchmark, part, rows)
    failed = [row for row in scored if has_failed(row)]
    found = mean_score(_item_scores(scored)) if scored else None
    score = None if found is None or found.value is None else 100 * found.value
    interval = None if found is None else _percent(found.interval)
    paper = paper_score(benchmark.name, sampling, setting, part)
    return BenchmarkScore(
        benchmark=benchmark.name,
        title=benchmark.title,
        part=part,
        setting=setting.name,
        ratio=setting.ratio,
        score=score,
        interval=interval,
        counted=0 if found is None else found.counted,
        answered=len(scored) - len(failed),
        failed=len(failed),
        without_answer=sum(row["correct"] is None for row in scored),
        paper=None if paper is None else paper.score,
        source=None if paper is None else paper.source,
        difference=None if paper is None or score is None else score - paper.score,
        difference_interval=None
        if paper is None or interval is None
        else (interval[0] - paper.score, interval[1] - paper.score),
        notes=tuple(_notes(benchmark, part, scored, setting)),
        videos=0 if found is None else found.videos,
    )


def _is_right(row: Row) -> bool:
    return bool(row.get("judge", row)["correct"])


def _notes(benchmark: Benchmark, part: str | None, rows: Sequence[Row], setting: Setting) -> Iterator[str]:
    """Yield reasons why a score is not directly comparable with the paper's."""
    if setting.ratio is None and setting.other is None:
        yield UNCOMPRESSED_NOTE
    if benchmark.name == "activitynetqa" and not _is_judged(rows):
        yield "exact match; the paper's figure is a GPT-4o judge's, so evaluate with a judge to compare"
    failed = [row for row in rows if has_failed(row)]
    if failed and part is None:
        yield (
            f"{len(failed)} of {len(rows)} questions could not be asked, such as {failed[0]['id']}: "
            f"{failed[0]['reason']}; {benchmark.name}/summary.json lists all"
        )
    unjudged = sum("unjudged" in row.get("judge", {}) for row in rows)
    if unjudged:
        yield (
            f"{unjudged} of {len(rows)} answers were not judged and are not in the figure; "
            "resume the run to ask the judge again"
        )
    if any(row["correct"] is None for row in rows):
        yield "records without an answer are not scored; if the benchmark withholds its answers, submit the predictions"
    damaged = {row["video"] for row in rows if "damage" in row}
    if damaged and part is None:
        yield f"damaged videos: {len(damaged)}; {benchmark.name}/summary.json lists them"


def _part_notes(benchmark: Benchmark, rows: Sequence[Row], *, is_limited: bool) -> Iterator[str]:
    """Yield notes on parts of a benchmark that its score does not cover."""
    if benchmark.name == "tempcompass":
        yield "the multi-choice part, as in the paper; caption matching and captioning are left to lmms-eval"
    elif len(benchmark.parts) > 1:
        found = {row["part"] for row in rows}
        if len(found) < len(benchmark.parts):
            why = "the limit leaves only" if is_limited else "the directory holds only"
            yield f"{len(found)} of {len(benchmark.parts)} parts: {why} {', '.join(sorted(found))}"
