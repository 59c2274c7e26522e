"""One evaluation, in order: read, begin or go on, ask, judge, put together."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aviot.evaluation import manifest
from aviot.evaluation.asking import Interviewer, ask_visits
from aviot.evaluation.batching import Key, Shard, Visit, plan, share
from aviot.evaluation.benchmarks.benchmark import read_benchmark
from aviot.evaluation.benchmarks.definitions import BY_NAME
from aviot.evaluation.config import EvaluationConfig, Setting
from aviot.evaluation.endpoint import Endpoint
from aviot.evaluation.judge import judge_rows, verdicts, wants_judge, with_verdict
from aviot.evaluation.measures import check_columns
from aviot.evaluation.progress import Display, RunningScore
from aviot.evaluation.reading import Items, read_items
from aviot.evaluation.report import as_plain, results_csv, summary_csv, summary_markdown
from aviot.evaluation.results import Expected, contradicted, has_failed, key_of, settled
from aviot.evaluation.summary import Summary, summarise
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.models.checkpoint import read_source
from aviot.utils.files import write_durably
from aviot.utils.journal import Journal, JournalError, Row, alone, as_line
from aviot.utils.printing import json_text

RESULTS, SUMMARY, PARTS, LOCK = "results.jsonl", "summary.json", "parts", ".lock"
RESULTS_CSV, SUMMARY_CSV, SUMMARY_MARKDOWN = "results.csv", "summary.csv", "summary.md"
Report = Callable[[str], None]
Load = Callable[[], tuple[AviotForConditionalGeneration, AviotProcessor]]
"""Gives the model; called when there is something to ask."""


@dataclass(frozen=True)
class Prepared:
    """What a configuration comes to: its items, settings and visits."""

    config: EvaluationConfig
    items: Items
    settings: tuple[Setting, ...]
    visits: list[Visit]
    processor: AviotProcessor

    @classmethod
    def of(cls, config: EvaluationConfig) -> "Prepared":
        """Read everything but the weights; columns to report by are checked."""
        if config.benchmark is None:
            items = read_items(config.items, videos=config.videos, split=config.split)
        else:
            items = read_benchmark(BY_NAME[config.benchmark], config.items)
        if config.limit is not None and config.limit >= len(items):
            config = replace(config, limit=None)
        items = replace(items, items=items.items[: config.limit])
        check_columns(items.items, config.by)
        settings = config.settings(read_source(config.model).config.ratio)
        processor = AviotProcessor.from_pretrained(config.model)
        return cls(config, items, settings, plan(items, settings, config.batch), processor)

    @property
    def total(self) -> int:
        """Rows of the whole run."""
        return len(self.items) * len(self.settings)

    @property
    def expected(self) -> Expected:
        """The rows that the run can have."""
        return Expected(self.items.items, self.settings)

    def interviewer(self, load: Load) -> Interviewer:
        """The model, and how it is asked."""
        model, processor = load()
        how = self.config
        return Interviewer(model, processor, how.instructions, how.max_new_tokens, how.sampling, how.limits)


@dataclass(frozen=True)
class Begun:
    """A run whose manifest is written; `was_whole` if all its rows were there already, and none are added."""

    prepared: Prepared
    shard: Shard
    was_whole: bool


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
    """Evaluate, or go on with what was begun; None if other processes still have rows to add, or have said it all.

    `retry` asks again what could not be asked before: a video may have come since.
    """
    return carry_out(begin(config, device, resume=resume, shard=shard, report=report), load, retry=retry)


def begin(
    config: EvaluationConfig,
    device: torch.device,
    *,
    resume: bool = False,
    shard: Shard | None = None,
    report: Report = lambda _: None,
) -> Begun:
    """Read everything but the weights, and write down what the run is; other processes wait for the first's word."""
    shard = shard or Shard.here()
    _check_start(config.out, resume=resume, shard=shard)
    report("reading items")
    prepared = Prepared.of(config)
    report("hashing weights")
    same = manifest.identity(prepared.config, prepared.items, prepared.settings, prepared.processor)
    added = manifest.begin(config, same, manifest.environment(device), shard)
    return Begun(prepared, shard, resume and not added and (config.out / RESULTS).is_file())


def carry_out(begun: Begun, load: Load, *, retry: bool = False) -> Summary | None:
    """Ask, judge and put together what is missing of a run."""
    _ask(begun.prepared, load, begun.shard, retry=retry)
    if (endpoint := begun.prepared.config.judge) is not None:
        _judge(begun.prepared, endpoint, begun.shard)
    return _put_together(begun.prepared, begun.shard, was_whole=begun.was_whole)


def _check_start(run: Path, *, resume: bool, shard: Shard) -> None:
    """A run that is there is gone on with only when asked for, and one that is asked for has to be there."""
    begun = (run / manifest.FILE).is_file() if shard.rank == 0 else _part(run, "rows", shard.rank).is_file()
    if begun and not resume:
        raise ValueError(f"{run} holds a run; add --resume to go on with it, or name another folder")
    if resume and shard.rank == 0 and not begun:
        raise ValueError(f"{run} holds no run to resume; leave out --resume to begin one")


def _ask(prepared: Prepared, load: Load, shard: Shard, *, retry: bool) -> None:
    """Put the rows that are missing of this process's share on disk, and what has become of those that failed."""
    run = prepared.config.out
    mine = share(prepared.visits, shard)
    with Journal(_part(run, "rows", shard.rank)) as journal:
        there = _rows(prepared)
        keys = [key for visit in mine for batch in visit.batches for key in batch.keys]
        done = frozenset(key for key in keys if key in there and not (retry and has_failed(there[key])))
        if len(done) == len(keys):
            return
        score = RunningScore()
        for key in done:
            score.add(there[key])
        interviewer = prepared.interviewer(load)
        with Display("asked", len(keys), len(done), silent=shard.rank > 0) as display:
            for row in ask_visits(interviewer, prepared.items.items, mine, done):
                if row != there.get(key_of(row)):
                    journal.add(row)
                score.add(row)
                display.advance(score)


def _judge(prepared: Prepared, endpoint: Endpoint, shard: Shard) -> None:
    """Have this process's share judged, what is missing and what could not be judged before."""
    run = prepared.config.out
    mine = {key for visit in share(prepared.visits, shard) for batch in visit.batches for key in batch.keys}
    with Journal(_part(run, "verdicts", shard.rank)) as journal:
        known = {key for key, row in verdicts(_verdicts(prepared)).items() if "unjudged" not in row}
        items = prepared.items.items
        asked = [row for key, row in _rows(prepared).items() if key in mine and wants_judge(row, items)]
        missing = [row for row in asked if key_of(row) not in known]
        with Display("judged", len(asked), len(asked) - len(missing), silent=shard.rank > 0) as display:
            said: Counter[str] = Counter()
            for row in judge_rows(endpoint, missing, items):
                journal.add(row)
                said["unjudged" if "unjudged" in row else "yes" if row["correct"] else "no"] += 1
                display.advance(", ".join(f"{count} {word}" for word, count in sorted(said.items())))


def _put_together(prepared: Prepared, shard: Shard, *, was_whole: bool) -> Summary | None:
    """Write the final files in the items' order once every row is there; whichever process comes last does it."""
    run = prepared.config.out
    with alone(run / LOCK):
        final = _final_rows(prepared)
        if final is None:
            return None
        data = b"".join(map(as_line, final))
        is_there = (run / RESULTS).is_file() and (run / RESULTS).read_bytes() == data
        if is_there and (shard.rank > 0 or not was_whole):
            return None  # another process has written it, and says so
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
    """Return all rows with their verdicts, in the order of items and settings; None while some are missing."""
    items, rows = prepared.items.items, _rows(prepared)
    order = {setting.name: place for place, setting in enumerate(prepared.settings)}
    judged = verdicts(_verdicts(prepared))
    if len(rows) < prepared.total:
        return None
    if prepared.config.judge is not None and any(
        wants_judge(row, items) and key not in judged for key, row in rows.items()
    ):
        return None
    keys = sorted(rows, key=lambda key: (key[0], order[key[1]]))
    return [with_verdict(rows[key], judged.get(key)) for key in keys]


def _write_summary(run: Path, summary: Summary) -> None:
    """Write a summary in every format; JSON, which `--verify` reads, last."""
    write_durably(run / SUMMARY_CSV, summary_csv(summary))
    write_durably(run / SUMMARY_MARKDOWN, summary_markdown(summary).encode())
    write_durably(run / SUMMARY, json_text(as_plain(summary), indent=2).encode() + b"\n")


def read_results(prepared: Prepared) -> list[Row]:
    """The rows of a finished run, each once; JournalError for a file that is not what the run wrote."""
    path = prepared.config.out / RESULTS
    rows = prepared.expected.rows(path, final=True)
    if len(rows) != prepared.total or len({key_of(row) for row in rows}) != len(rows):
        raise JournalError(
            f"{path} must have {prepared.total} rows, each once, and has {len(rows)}; it was changed, delete it and "
            "go on with the run"
        )
    return rows


def _notes(prepared: Prepared) -> list[str]:
    """What a reader of the figures should know of how they came about."""
    starts = manifest.read_manifest(prepared.config.out)["starts"]
    kept = [{name: start.get(name) for name in ("commit", "versions", "machine", "ffmpeg")} for start in starts]
    changed = [line for start in kept[1:] for line in manifest.differences(kept[0], start)]
    notes = [f"the run was resumed where something else was installed: {line}" for line in dict.fromkeys(changed)]
    if twice := contradicted(_all_rows(prepared)):
        name = f"{prepared.items.items[twice[0][0]].id}, {twice[0][1]}"
        notes.append(f"{len(twice)} answers are there twice and differ, like {name}; of each the first counts")
    return notes


def _part(run: Path, kind: str, rank: int) -> Path:
    return run / PARTS / f"{kind}-{rank:04d}.jsonl"


def _rows(prepared: Prepared) -> dict[Key, Row]:
    """The row of each question and setting so far; an answer replaces a failure."""
    return settled(_all_rows(prepared), has_failed)


def _all_rows(prepared: Prepared) -> list[Row]:
    """The rows of every process so far."""
    return [row for path in _parts(prepared, "rows") for row in prepared.expected.rows(path)]


def _verdicts(prepared: Prepared) -> list[Row]:
    """The verdicts of every process so far."""
    return [row for path in _parts(prepared, "verdicts") for row in prepared.expected.verdicts(path)]


def _parts(prepared: Prepared, kind: str) -> list[Path]:
    return sorted((prepared.config.out / PARTS).glob(f"{kind}-*.jsonl"))
