"""Run an evaluation: read items, start or resume the run, ask, judge, write results and summary."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aviot.backbones import registry as backbones
from aviot.backbones.base import StoredBackbone
from aviot.evaluation import manifest
from aviot.evaluation.batching import RowKey, Shard, VideoBatches, batch_by_video, select_shard
from aviot.evaluation.config import EvaluationConfig, Setting
from aviot.evaluation.endpoint import Endpoint
from aviot.evaluation.judge import judge_rows, needs_verdict, verdict_by_key, with_verdict
from aviot.evaluation.measures import check_columns
from aviot.evaluation.prediction import Predictor, predict_videos
from aviot.evaluation.progress import Display, RunningScore
from aviot.evaluation.questions import read_questions
from aviot.evaluation.reading import Items
from aviot.evaluation.report import as_dict, results_csv, summary_csv, summary_markdown
from aviot.evaluation.results import ExpectedRows, conflicting_keys, has_failed, resolve_rows, row_key
from aviot.evaluation.summary import Summary, summarise
from aviot.session import VideoLM
from aviot.utils.files import has_content, write_durably
from aviot.utils.journal import Journal, JournalError, Row, as_line, exclusive_lock
from aviot.utils.printing import json_text

RESULTS, SUMMARY, PARTS, LOCK = "results.jsonl", "summary.json", "parts", ".lock"
RESULTS_CSV, SUMMARY_CSV, SUMMARY_MARKDOWN = "results.csv", "summary.csv", "summary.md"
Report = Callable[[str], None]
Load = Callable[[], VideoLM]
"""Returns the model; called only if there are questions to ask."""


class RunExistsError(ValueError):
    """A new run was to be started in the directory of another."""


class NoRunError(ValueError):
    """A run was to be resumed in a directory that holds none."""


@dataclass(frozen=True)
class Prepared:
    """A configuration with its items, settings and batches."""

    config: EvaluationConfig
    items: Items
    settings: tuple[Setting, ...]
    videos: list[VideoBatches]
    stored: StoredBackbone

    @classmethod
    def of(cls, config: EvaluationConfig) -> "Prepared":
        """Read everything but the weights, and check the columns to report by."""
        items = read_questions(config)
        if config.limit is not None and config.limit >= len(items):
            config = replace(config, limit=None)
        items = replace(items, items=items.items[: config.limit])
        check_columns(items.items, config.by)
        stored = backbones.stored(config.model, base=config.base)
        settings = config.settings(stored.default_budget)
        batches = batch_by_video(items.items, items.folder, settings, config.batch)
        return cls(config, items, settings, batches, stored)

    @property
    def total(self) -> int:
        """Return the number of rows of the complete run."""
        return len(self.items) * len(self.settings)

    @property
    def expected(self) -> ExpectedRows:
        """Return the rows that the run may contain."""
        return ExpectedRows(self.items.items, self.settings)

    def predictor(self, load: Load) -> Predictor:
        """Load the model, and return it with the settings of its answers."""
        how = self.config
        return Predictor(load(), how.instructions, how.max_new_tokens, how.sampling, how.limits)


@dataclass(frozen=True)
class StartedRun:
    """A run whose manifest is written; `was_complete` if it was finished before and this start adds nothing."""

    prepared: Prepared
    shard: Shard
    was_complete: bool


def evaluate(
    config: EvaluationConfig,
    load: Load,
    device: torch.device,
    *,
    resume: bool = False,
    retry: bool = False,
    shard: Shard | None = None,
    report: Report = lambda _: None,
) -> Summary | None:
    """Run an evaluation, or resume one. Returns None unless this rank wrote the summary.

    `retry` repeats questions that failed before, for example because a video was missing.
    """
    return finish_run(start_run(config, device, resume=resume, shard=shard, report=report), load, retry=retry)


def start_run(
    config: EvaluationConfig,
    device: torch.device,
    *,
    resume: bool = False,
    shard: Shard | None = None,
    report: Report = lambda _: None,
) -> StartedRun:
    """Read everything but the weights and record the start; ranks above 0 wait for rank 0 to write the manifest."""
    shard = shard or Shard.here()
    _check_start(config.out, resume=resume, shard=shard)
    report("reading items")
    prepared = Prepared.of(config)
    report("hashing weights")
    identity = manifest.identity(prepared.config, prepared.items, prepared.settings, prepared.stored)
    added = manifest.record_start(config, identity, manifest.environment(device), shard)
    return StartedRun(prepared, shard, resume and not added and (config.out / RESULTS).is_file())


def finish_run(started: StartedRun, load: Load, *, retry: bool = False) -> Summary | None:
    """Ask and judge what is missing, then write the final files. Returns None unless this rank wrote the summary."""
    _ask(started.prepared, load, started.shard, retry=retry)
    if (endpoint := started.prepared.config.judge) is not None:
        _judge(started.prepared, endpoint, started.shard)
    return _write_final_files(started.prepared, started.shard, was_complete=started.was_complete)


def _check_start(run: Path, *, resume: bool, shard: Shard) -> None:
    """Raise unless the directory holds a run exactly if one is to be resumed."""
    exists = (run / manifest.FILE).is_file() if shard.rank == 0 else _journal_path(run, "rows", shard.rank).is_file()
    if exists and not resume:
        raise RunExistsError(f"{run} already holds a run; resume it, or choose another output directory")
    if resume and shard.rank == 0 and not exists:
        raise NoRunError(f"{run} holds no run to resume; start a new one")


def _ask(prepared: Prepared, load: Load, shard: Shard, *, retry: bool) -> None:
    """Write the missing rows of this rank's shard to its journal; with `retry`, also new rows of failed questions."""
    run = prepared.config.out
    mine = select_shard(prepared.videos, shard)
    with Journal(_journal_path(run, "rows", shard.rank)) as journal:
        there = _rows(prepared)
        keys = [key for visit in mine for batch in visit.batches for key in batch.keys]
        done = frozenset(key for key in keys if key in there and not (retry and has_failed(there[key])))
        if len(done) == len(keys):
            return
        score = RunningScore()
        for key in done:
            score.add(there[key])
        predictor = prepared.predictor(load)
        with Display("asked", len(keys), len(done), silent=shard.rank > 0) as display:
            for row in predict_videos(predictor, prepared.items.items, mine, done):
                if row != there.get(row_key(row)):
                    journal.add(row)
                score.add(row)
                display.advance(score)


def _judge(prepared: Prepared, endpoint: Endpoint, shard: Shard) -> None:
    """Request the verdicts of this rank's shard that are missing or failed before."""
    run = prepared.config.out
    mine = {key for video in select_shard(prepared.videos, shard) for batch in video.batches for key in batch.keys}
    with Journal(_journal_path(run, "verdicts", shard.rank)) as journal:
        known = {key for key, row in verdict_by_key(_verdicts(prepared)).items() if "unjudged" not in row}
        items = prepared.items.items
        asked = [row for key, row in _rows(prepared).items() if key in mine and needs_verdict(row, items)]
        missing = [row for row in asked if row_key(row) not in known]
        with Display("judged", len(asked), len(asked) - len(missing), silent=shard.rank > 0) as display:
            counts: Counter[str] = Counter()
            for row in judge_rows(endpoint, missing, items):
                journal.add(row)
                counts["unjudged" if "unjudged" in row else "yes" if row["correct"] else "no"] += 1
                display.advance(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))


def _write_final_files(prepared: Prepared, shard: Shard, *, was_complete: bool) -> Summary | None:
    """Write the final files once all rows exist; the last rank to finish does so, the others return None."""
    run = prepared.config.out
    with exclusive_lock(run / LOCK):
        final = _final_rows(prepared)
        if final is None:
            return None
        data = b"".join(map(as_line, final))
        is_written = has_content(run / RESULTS, data)
        if is_written and (shard.rank > 0 or not was_complete):
            return None  # another rank wrote the files and reports them
        write_durably(run / RESULTS, data)
        write_durably(run / RESULTS_CSV, results_csv(final, prepared.items.items))
        summary = summarise(
            final,
            prepared.items.items,
            digest=hashlib.sha256(data).hexdigest(),
            videos=str(prepared.items.folder.absolute()),
            by=prepared.config.by,
            notes=[*prepared.items.notes, *_notes(prepared)],
        )
        _write_summary(run, summary)
        return summary


def _final_rows(prepared: Prepared) -> list[Row] | None:
    """Return all rows with their verdicts, in the order of items and settings; None if any is missing."""
    items, rows = prepared.items.items, _rows(prepared)
    order = {setting.name: index for index, setting in enumerate(prepared.settings)}
    judged = verdict_by_key(_verdicts(prepared))
    if len(rows) < prepared.total:
        return None
    if prepared.config.judge is not None and any(
        needs_verdict(row, items) and key not in judged for key, row in rows.items()
    ):
        return None
    keys = sorted(rows, key=lambda key: (key[0], order[key[1]]))
    return [with_verdict(rows[key], judged.get(key)) for key in keys]


def _write_summary(run: Path, summary: Summary) -> None:
    """Write a summary in every format; JSON, which verification reads, comes last."""
    write_durably(run / SUMMARY_CSV, summary_csv(summary))
    write_durably(run / SUMMARY_MARKDOWN, summary_markdown(summary).encode())
    write_durably(run / SUMMARY, json_text(as_dict(summary), indent=2).encode() + b"\n")


def read_results(prepared: Prepared) -> list[Row]:
    """Return the rows of a finished run; raise JournalError if rows are missing, duplicate or of another run."""
    path = prepared.config.out / RESULTS
    rows = prepared.expected.rows(path, final=True)
    if len(rows) != prepared.total or len({row_key(row) for row in rows}) != len(rows):
        raise JournalError(
            f"{path} must have {prepared.total} rows, each once, and has {len(rows)}; it was edited, delete it and "
            "resume the run"
        )
    return rows


def _notes(prepared: Prepared) -> list[str]:
    """Return notes on changes of the environment between starts, and on conflicting rows."""
    starts = manifest.read_manifest(prepared.config.out)["starts"]
    environments = [{name: start.get(name) for name in ("commit", "versions", "machine", "ffmpeg")} for start in starts]
    changed = [line for other in environments[1:] for line in manifest.differences(environments[0], other)]
    notes = [f"the run was resumed in another environment: {line}" for line in dict.fromkeys(changed)]
    if keys := conflicting_keys(_all_rows(prepared)):
        name = f"{prepared.items.items[keys[0][0]].id}, {keys[0][1]}"
        notes.append(f"{len(keys)} questions have two different answers, such as {name}; the first of each counts")
    return notes


def _journal_path(run: Path, kind: str, rank: int) -> Path:
    return run / PARTS / f"{kind}-{rank:04d}.jsonl"


def _rows(prepared: Prepared) -> dict[RowKey, Row]:
    """Return the current row of each key; an answer replaces a failure."""
    return resolve_rows(_all_rows(prepared), has_failed)


def _all_rows(prepared: Prepared) -> list[Row]:
    """Return the rows of all ranks so far."""
    return [row for path in _journal_paths(prepared, "rows") for row in prepared.expected.rows(path)]


def _verdicts(prepared: Prepared) -> list[Row]:
    """Return the verdicts of all ranks so far."""
    return [row for path in _journal_paths(prepared, "verdicts") for row in prepared.expected.verdicts(path)]


def _journal_paths(prepared: Prepared, kind: str) -> list[Path]:
    return sorted((prepared.config.out / PARTS).glob(f"{kind}-*.jsonl"))
