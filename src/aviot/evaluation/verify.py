"""Verify a run: compare its files with their hashes, and ask a random sample of its questions again."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aviot.backbones.loading import LoadOptions
from aviot.budget import parse_budget
from aviot.evaluation import manifest
from aviot.evaluation.batching import ItemBatch, RowKey, VideoBatches
from aviot.evaluation.config import EvaluationConfig
from aviot.evaluation.item import Instructions
from aviot.evaluation.prediction import predict_videos
from aviot.evaluation.progress import Display
from aviot.evaluation.results import ANSWERED, read_finished_rows, row_key, score_reply
from aviot.evaluation.run import RESULTS, SUMMARY, Load, Prepared
from aviot.utils.journal import Row

LISTED = 10
"""Rows that do not belong to the run, as many as are listed."""


class UnfinishedRunError(ValueError):
    """A run that has no final results yet."""


@dataclass(frozen=True)
class Verification:
    """The result of verifying a run."""

    run: str
    rerun: int
    repeated: int
    changed: tuple[str, ...]  # answers that differ when asked again
    broken: tuple[str, ...]  # files, scores and settings that differ from the run's records
    environment: tuple[str, ...]  # versions and hardware that differ, which is not a failure

    @property
    def holds(self) -> bool:
        """Return whether nothing that was checked differs from the run's records."""
        return self.rerun == self.repeated and not self.broken


def recorded_config(
    run: Path,
    *,
    items: Path | None = None,
    model: Path | None = None,
    videos: Path | None = None,
    base: Path | None = None,
) -> EvaluationConfig:
    """Return the configuration of a run; the arguments replace paths that have moved since."""
    stored = manifest.read_manifest(run)
    identity, places = stored["identity"], stored["places"]
    videos_before, base_before = (
        None if (place := places.get(name)) is None else Path(place) for name in ("videos", "base")
    )
    sampling = {name: value for name, value in identity["sampling"].items() if name != "image_size"}
    return EvaluationConfig(
        items=items or Path(places["items"]),
        model=model or Path(places["model"]),
        out=run,
        videos=videos or videos_before,
        split=identity["items"]["split"],
        benchmark=identity["items"].get("benchmark"),
        ratios=tuple(dict.fromkeys(s["ratio"] for s in identity["settings"] if s["ratio"] is not None)),
        budgets=tuple(dict.fromkeys(parse_budget(s["other"]) for s in identity["settings"] if "other" in s)),
        methods=tuple(dict.fromkeys(s["method"] for s in identity["settings"])),
        sampling=sampling,
        instructions=Instructions(**identity["prompt"]["instructions"]),
        max_new_tokens=identity["generation"]["max_new_tokens"],
        batch=identity["generation"]["batch"],
        seed=identity["seed"],
        limit=identity["items"].get("limit"),
        loading=LoadOptions.of_record(identity["generation"]),
        base=base or base_before,
    )


def verify(config: EvaluationConfig, load: Load, device: torch.device, *, sample: int, seed: int) -> Verification:
    """Check a run's files, ask at least `sample` of its questions again in whole batches, and compare the answers."""
    if sample < 1:
        raise ValueError(f"sample must be a whole number of at least 1, got {sample}")
    run = config.out
    stored = manifest.read_manifest(run)
    written = _final_rows(run / RESULTS)
    prepared = Prepared.of(config)
    current = manifest.identity(prepared.config, prepared.items, prepared.settings, prepared.stored)
    foreign, rows = _split_foreign(written, prepared)
    broken = [
        *manifest.differences(stored["identity"], current),
        *foreign,
        *_edits(run, prepared, list(rows.values()), len(written)),
    ]
    drawn = _draw(prepared.videos, sample, seed)
    wanted = {key for video in drawn for batch in video.batches for key in batch.keys}
    changed: list[str] = []
    with Display("asked again", len(wanted), 0, silent=False) as display:
        for row in predict_videos(prepared.predictor(load), prepared.items.items, drawn, frozenset()):
            changed += _compare(rows.get(row_key(row)), row)
            display.advance(f"{len(changed)} changed")
    last = {name: stored["starts"][-1].get(name) for name in ("commit", "versions", "machine", "ffmpeg")}
    return Verification(
        run=str(run),
        rerun=len(wanted),
        repeated=len(wanted) - len(changed),
        changed=tuple(changed),
        broken=tuple(broken),
        environment=tuple(manifest.differences(last, manifest.environment(device))),
    )


def _final_rows(path: Path) -> list[Row]:
    """Return the well-formed rows of a finished run."""
    rows = read_finished_rows(path)
    if not rows:
        raise UnfinishedRunError(f"{path.parent} has no {path.name}; resume the run and let it finish first")
    return rows


def _split_foreign(rows: Sequence[Row], prepared: Prepared) -> tuple[list[str], dict[RowKey, Row]]:
    """Return sentences on duplicate rows and rows that do not belong to the run, and the other rows by key."""
    problems: list[str] = []
    found: dict[RowKey, Row] = {}
    for number, row in enumerate(rows, 1):
        wrong = prepared.expected.mismatch(row) or ("it is a duplicate" if row_key(row) in found else None)
        if wrong is None:
            found[row_key(row)] = row
        else:
            problems.append(f"{RESULTS}, line {number} is not a row of this run: {wrong}")
    more = len(problems) - LISTED
    return problems[:LISTED] + ([f"{RESULTS} has {more} more such rows"] if more > 0 else []), found


def _draw(videos: Sequence[VideoBatches], sample: int, seed: int) -> list[VideoBatches]:
    """Return random batches with at least `sample` rows, grouped by video so that each is encoded once."""
    batches = [(index, batch) for index, video in enumerate(videos) for batch in video.batches]
    random.Random(seed).shuffle(batches)
    taken: dict[int, list[ItemBatch]] = {}
    rows = 0
    for index, batch in batches:
        if rows >= sample:
            break
        taken.setdefault(index, []).append(batch)
        rows += len(batch.items)
    return [replace(videos[index], batches=tuple(taken[index])) for index in sorted(taken)]


def _edits(run: Path, prepared: Prepared, rows: Sequence[Row], written: int) -> list[str]:
    """Return sentences on a results file that differs from its summary, is incomplete, or has other scores."""
    found = []
    recorded = manifest.read_object(run / SUMMARY).get("results_sha256")
    actual = hashlib.sha256((run / RESULTS).read_bytes()).hexdigest()
    if recorded != actual:
        found.append(f"{RESULTS} is not the file that {SUMMARY} summarises: its SHA-256 was {recorded}, is {actual}")
    if written != prepared.total:
        found.append(f"{RESULTS} must have {prepared.total} rows, each once; it has {written}")
    for row in rows:
        if row["status"] != ANSWERED:
            continue
        score = score_reply(prepared.items.items[row["item"]], row["prediction"], row.get("duration"))
        if score.correct != row["correct"] or (score.overlap and score.overlap.iou != row.get("iou")):
            found.append(
                f"{row['id']}, {row['setting']}: its answer scores {score.correct}, the row says {row['correct']}"
            )
    return found


def _compare(before: Row | None, now: Row) -> list[str]:
    where = f"{now['id']}, {now['setting']}"
    if before is None:
        return [f"{where}: the run has no such row"]
    old, new = (row.get("prediction", f"failed: {row.get('reason')}") for row in (before, now))
    return [] if old == new else [f"{where}: answered {old!r:.120}, now {new!r:.120}"]
