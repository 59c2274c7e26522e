"""A run repeated in part: same items, same weights, same answers?"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aviot.evaluation import manifest
from aviot.evaluation.asking import ask_visits
from aviot.evaluation.batching import Batch, Key, Visit
from aviot.evaluation.config import EvaluationConfig
from aviot.evaluation.item import Instructions
from aviot.evaluation.progress import Display
from aviot.evaluation.results import ANSWERED, key_of, score_reply, well_formed_rows
from aviot.evaluation.run import RESULTS, SUMMARY, Load, Prepared
from aviot.utils.journal import Row

LISTED = 10
"""Rows of other runs that are named."""


@dataclass(frozen=True)
class Verification:
    """What was rerun, what came out otherwise, and what else is not as it was."""

    run: str
    rerun: int
    repeated: int
    changed: tuple[str, ...]  # answers that differ
    broken: tuple[str, ...]  # files, scores and settings that are not what the run says
    environment: tuple[str, ...]  # versions and hardware that differ; no fault by itself

    @property
    def holds(self) -> bool:
        """Whether everything that was looked at is as the run says."""
        return self.rerun == self.repeated and not self.broken


def recorded_config(
    run: Path, *, items: Path | None = None, model: Path | None = None, videos: Path | None = None
) -> EvaluationConfig:
    """The configuration of a run; items, checkpoint and videos may have moved since."""
    stored = manifest.read_manifest(run)
    same, places = stored["identity"], stored["places"]
    videos_before = None if places["videos"] is None else Path(places["videos"])
    sampling = {name: value for name, value in same["sampling"].items() if name != "image_size"}
    return EvaluationConfig(
        items=items or Path(places["items"]),
        model=model or Path(places["model"]),
        out=run,
        videos=videos or videos_before,
        split=same["items"]["split"],
        benchmark=same["items"].get("benchmark"),
        ratios=tuple(dict.fromkeys(s["ratio"] for s in same["settings"] if s["ratio"] is not None)),
        compressors=tuple(dict.fromkeys(s["compressor"] for s in same["settings"])),
        sampling=sampling,
        instructions=Instructions(**same["prompt"]["instructions"]),
        max_new_tokens=same["generation"]["max_new_tokens"],
        batch=same["generation"]["batch"],
        seed=same["seed"],
        limit=same["items"].get("limit"),
    )


def verify(config: EvaluationConfig, load: Load, device: torch.device, *, sample: int, seed: int) -> Verification:
    """Ask a random sample of a run's questions again, whole batches of them, and compare with what it says."""
    if sample < 1:
        raise ValueError(f"sample must be a whole number of at least 1, got {sample}")
    run = config.out
    stored = manifest.read_manifest(run)
    written = _final_rows(run / RESULTS)
    prepared = Prepared.of(config)
    current = manifest.identity(prepared.config, prepared.items, prepared.settings, prepared.processor)
    strays, rows = _sorted(written, prepared)
    broken = [
        *manifest.differences(stored["identity"], current),
        *strays,
        *_tampering(run, prepared, list(rows.values()), len(written)),
    ]
    drawn = _draw(prepared.visits, sample, seed)
    wanted = {key for visit in drawn for batch in visit.batches for key in batch.keys}
    changed: list[str] = []
    with Display("asked again", len(wanted), 0, silent=False) as display:
        for row in ask_visits(prepared.interviewer(load), prepared.items.items, drawn, frozenset()):
            changed += _compare(rows.get(key_of(row)), row)
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
    """The rows of a finished run, each of the form that a run writes."""
    rows = well_formed_rows(path)
    if not rows:
        raise ValueError(f"{path.parent} holds no {path.name}; finish it with --resume first")
    return rows


def _sorted(rows: Sequence[Row], prepared: Prepared) -> tuple[list[str], dict[Key, Row]]:
    """What is said of rows that are none of the run's, or there twice, and the others by their place."""
    said: list[str] = []
    found: dict[Key, Row] = {}
    for number, row in enumerate(rows, 1):
        wrong = prepared.expected.misfit(row) or ("it is there twice" if key_of(row) in found else None)
        if wrong is None:
            found[key_of(row)] = row
        else:
            said.append(f"{RESULTS}, line {number} is no row of this run: {wrong}")
    more = len(said) - LISTED
    return said[:LISTED] + ([f"{RESULTS} has {more} more such rows"] if more > 0 else []), found


def _draw(visits: Sequence[Visit], sample: int, seed: int) -> list[Visit]:
    """Random batches until there are `sample` rows, put back in order so that a video is encoded once."""
    batches = [(place, batch) for place, visit in enumerate(visits) for batch in visit.batches]
    random.Random(seed).shuffle(batches)
    taken: dict[int, list[Batch]] = {}
    rows = 0
    for place, batch in batches:
        if rows >= sample:
            break
        taken.setdefault(place, []).append(batch)
        rows += len(batch.items)
    return [replace(visits[place], batches=tuple(taken[place])) for place in sorted(taken)]


def _tampering(run: Path, prepared: Prepared, rows: Sequence[Row], written: int) -> list[str]:
    """Whether the final file is the one that was summed up, whole, and scored as its answers are scored."""
    found = []
    told = manifest.read_object(run / SUMMARY).get("results_sha256")
    actual = hashlib.sha256((run / RESULTS).read_bytes()).hexdigest()
    if told != actual:
        found.append(f"{RESULTS} is not the file that {SUMMARY} sums up: its SHA-256 was {told}, is {actual}")
    if written != prepared.total:
        found.append(f"{RESULTS} must have {prepared.total} rows, each once; it has {written}")
    for row in rows:
        if row["status"] != ANSWERED:
            continue
        score = score_reply(prepared.items.items[row["item"]], row["prediction"])
        if score.correct != row["correct"]:
            found.append(
                f"{row['id']}, {row['setting']}: its answer scores {score.correct}, and is put down as {row['correct']}"
            )
    return found


def _compare(before: Row | None, now: Row) -> list[str]:
    where = f"{now['id']}, {now['setting']}"
    if before is None:
        return [f"{where}: the run has no such row"]
    said: list[Any] = [row.get("prediction", f"failed: {row.get('reason')}") for row in (before, now)]
    return [] if said[0] == said[1] else [f"{where}: answered {said[0]!r:.120}, now {said[1]!r:.120}"]
