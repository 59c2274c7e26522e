"""Run the benchmarks that are on disk, each as a run of its own, and report them in one table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aviot.budget import Budget
from aviot.evaluation.batching import Shard
from aviot.evaluation.benchmarks.benchmark import Benchmark, record_files
from aviot.evaluation.benchmarks.definitions import BENCHMARKS
from aviot.evaluation.config import EvaluationConfig, Setting
from aviot.evaluation.manifest import FILE
from aviot.evaluation.run import LOCK, RESULTS, Load, Report, StartedRun, finish_run, read_results, start_run
from aviot.evaluation.suite.comparison import (
    CONTROLLED_RATIOS,
    DENSE,
    FIXED,
    TABLE_RATIO,
    compare,
    compare_settings,
    paper_score,
    sampling_name,
)
from aviot.evaluation.suite.report import NOTHING, NotRun, SuiteReport, match_model, write_report
from aviot.evaluation.summary import caveats
from aviot.utils.journal import exclusive_lock

JUDGED = "activitynetqa"
"""The benchmark whose protocol uses a judge."""


def paper_sampling(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen frame sampling, by default the paper's: 2 frames per second, at most 224."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return given if "frames" in given else DENSE | given


def paper_ratios(chosen: Sequence[float], sampling: dict[str, Any]) -> tuple[float, ...]:
    """Return the chosen ratios, by default those of the paper's table with this sampling."""
    return tuple(chosen) or (CONTROLLED_RATIOS if sampling == FIXED else (TABLE_RATIO,))


def run_suite(
    base: EvaluationConfig,
    load: Load,
    device: torch.device,
    *,
    max_new_tokens: int | None,
    resume: bool = False,
    retry: bool = False,
    shard: Shard | None = None,
    report: Report = lambda _: None,
) -> SuiteReport | None:
    """Run every benchmark found below `base.items`. Returns None unless this rank wrote the report.

    Each run has its own directory below `base.out`, where it can be resumed and verified like any other; the report is
    written to `base.out`.
    """
    shard = shard or Shard.here()
    data, out = base.items, base.out
    if not data.is_dir():
        raise ValueError(f"{data} is not a directory; expected one with a subdirectory per benchmark: {_names()}")
    found = [benchmark for benchmark in BENCHMARKS if _missing_reason(benchmark, data) is None]
    if not found:
        raise ValueError(f"{data} holds none of the benchmarks; put their data into subdirectories named {_names()}")
    started = []
    for benchmark in found:  # start all first: ranks need not synchronise later, and mistakes are reported at once
        report(benchmark.title)
        config = replace(
            base,
            items=data / benchmark.name,
            out=out / benchmark.name,
            benchmark=benchmark.name,
            max_new_tokens=benchmark.max_new_tokens if max_new_tokens is None else max_new_tokens,
            judge=base.judge if benchmark.name == JUDGED else None,
        )
        is_resumed = resume and (shard.rank > 0 or (config.out / FILE).is_file())
        started.append(start_run(config, device, resume=is_resumed, shard=shard, report=report))
    load_once = _load_once(load)
    for run in started:
        finish_run(run, load_once, retry=retry)
    if not all((out / benchmark.name / RESULTS).is_file() for benchmark in found):
        return None
    with exclusive_lock(out / LOCK):
        suite = build_report(base, found, started)
        is_new = write_report(suite, out)
    return suite if is_new or (shard.rank == 0 and all(run.was_complete for run in started)) else None


def build_report(base: EvaluationConfig, found: Sequence[Benchmark], runs: Sequence[StartedRun]) -> SuiteReport:
    """Return the report of finished runs."""
    name = sampling_name(base.sampling)
    rows = {each.name: read_results(run.prepared) for each, run in zip(found, runs, strict=True)}
    limited = base.limit is not None
    lines = [line for each in found for line in compare(each, rows[each.name], name, is_limited=limited)]
    differences = [line for each in found for line in compare_settings(each, rows[each.name])]
    setting = base.settings(Budget(ratio=TABLE_RATIO))[0]
    missing = [_not_run(each, base.items, name, setting) for each in BENCHMARKS if each not in found]
    return SuiteReport(
        model=match_model(base.model),
        sampling=name,
        lines=tuple(lines),
        missing=tuple(missing),
        differences=tuple(differences),
        limit=base.limit,
        caveats=tuple(caveats(lines)),
    )


def _not_run(benchmark: Benchmark, data: Path, sampling: str, setting: Setting) -> NotRun:
    score = paper_score(benchmark.name, sampling, setting)
    paper = NOTHING if score is None else f"{score.score:.2f} ({setting.name})"
    return NotRun(benchmark.name, benchmark.title, _missing_reason(benchmark, data) or "", paper)


def _missing_reason(benchmark: Benchmark, data: Path) -> str | None:
    """Return why a benchmark cannot be run; None if it can."""
    folder = data / benchmark.name
    if not folder.is_dir():
        return f"no directory {benchmark.name}"
    single = len(benchmark.parts) == 1
    if not any(record_files(folder, part, is_only_part=single) for part in benchmark.parts):
        return f"no records in {benchmark.name} (split {benchmark.parts[0].split})"
    return None


def _names() -> str:
    return ", ".join(benchmark.name for benchmark in BENCHMARKS)


def _load_once(load: Load) -> Load:
    """Return a function that loads the model at the first call and returns the same one afterwards."""
    cached: list[Any] = []

    def loaded() -> Any:
        if not cached:
            cached.append(load())
        return cached[0]

    return loaded
