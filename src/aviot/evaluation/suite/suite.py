"""The suite: the benchmarks that are there, each a run of its own, then one table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aviot.evaluation.batching import Shard
from aviot.evaluation.benchmarks.benchmark import Benchmark, record_files
from aviot.evaluation.benchmarks.definitions import BENCHMARKS
from aviot.evaluation.config import EvaluationConfig, Setting
from aviot.evaluation.manifest import FILE
from aviot.evaluation.run import LOCK, RESULTS, Begun, Load, Report, begin, carry_out, read_results
from aviot.evaluation.suite.comparison import (
    CONTROLLED_RATIOS,
    DENSE,
    FIXED,
    TABLE_RATIO,
    compare,
    compare_settings,
    figure,
    sampling_name,
)
from aviot.evaluation.suite.report import NOTHING, Missing, SuiteReport, about_model, write_report
from aviot.evaluation.summary import caveats
from aviot.utils.journal import alone

JUDGED = "activitynetqa"
"""The benchmark whose protocol has a judge."""


def paper_sampling(chosen: dict[str, Any]) -> dict[str, Any]:
    """The paper's frames, two a second and at most 224, unless something else was chosen."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return given if "frames" in given else DENSE | given


def paper_ratios(chosen: Sequence[float], sampling: dict[str, Any]) -> tuple[float, ...]:
    """The ratios of the paper's table with this sampling, unless others were chosen."""
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
    """Every benchmark below `base.items` that is there; None if other processes still have rows to add, or say it all.

    Runs go to a folder each below `base.out`, and are resumed and verified like any other; the report goes beside them.
    """
    shard = shard or Shard.here()
    data, out = base.items, base.out
    if not data.is_dir():
        raise ValueError(
            f"{data} is no folder; --suite paper takes one that holds a folder for each benchmark: {_names()}"
        )
    there = [benchmark for benchmark in BENCHMARKS if _reason(benchmark, data) is None]
    if not there:
        raise ValueError(f"{data} holds none of the benchmarks; put the data you have into folders named {_names()}")
    begun = []
    for benchmark in there:  # all before anything is asked: processes need not keep step, and mistakes come up at once
        report(benchmark.title)
        config = replace(
            base,
            items=data / benchmark.name,
            out=out / benchmark.name,
            benchmark=benchmark.name,
            max_new_tokens=benchmark.max_new_tokens if max_new_tokens is None else max_new_tokens,
            judge=base.judge if benchmark.name == JUDGED else None,
        )
        goes_on = resume and (shard.rank > 0 or (config.out / FILE).is_file())
        begun.append(begin(config, device, resume=goes_on, shard=shard, report=report))
    loaded = _once(load)
    for run in begun:
        carry_out(run, loaded, retry=retry)
    if not all((out / benchmark.name / RESULTS).is_file() for benchmark in there):
        return None
    with alone(out / LOCK):
        found = put_together(base, there, begun)
        is_new = write_report(found, out)
    return found if is_new or (shard.rank == 0 and all(run.was_whole for run in begun)) else None


def put_together(base: EvaluationConfig, there: Sequence[Benchmark], begun: Sequence[Begun]) -> SuiteReport:
    """The report of finished runs."""
    name = sampling_name(base.sampling)
    rows = {each.name: read_results(run.prepared) for each, run in zip(there, begun, strict=True)}
    limited = base.limit is not None
    lines = [line for each in there for line in compare(each, rows[each.name], name, is_limited=limited)]
    apart = [line for each in there for line in compare_settings(each, rows[each.name])]
    setting = base.settings(TABLE_RATIO)[0]
    missing = [_missing(each, base.items, name, setting) for each in BENCHMARKS if each not in there]
    return SuiteReport(
        model=about_model(base.model),
        sampling=name,
        lines=tuple(lines),
        missing=tuple(missing),
        differences=tuple(apart),
        limit=base.limit,
        caveats=tuple(caveats(lines)),
    )


def _missing(benchmark: Benchmark, data: Path, sampling: str, setting: Setting) -> Missing:
    said = figure(benchmark.name, sampling, setting)
    paper = NOTHING if said is None else f"{said.score:.2f} ({setting.name})"
    return Missing(benchmark.name, benchmark.title, _reason(benchmark, data) or "", paper)


def _reason(benchmark: Benchmark, data: Path) -> str | None:
    """Why a benchmark cannot be run; None if it can."""
    folder = data / benchmark.name
    if not folder.is_dir():
        return f"no folder {benchmark.name}"
    alone = len(benchmark.parts) == 1
    if not any(record_files(folder, part, alone=alone) for part in benchmark.parts):
        return f"no records in {benchmark.name} (split {benchmark.parts[0].split})"
    return None


def _names() -> str:
    return ", ".join(benchmark.name for benchmark in BENCHMARKS)


def _once(load: Load) -> Load:
    """The model is loaded for the first benchmark that asks something, and kept."""
    kept: list[Any] = []

    def loaded() -> Any:
        if not kept:
            kept.append(load())
        return kept[0]

    return loaded
