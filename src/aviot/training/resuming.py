"""Selection of the checkpoint that a run starts from: verified, and written by the same run."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from aviot.training import saving
from aviot.training.identity import RUN_FILE, ResumeError, StartPoint, Starts, is_recorded, read_starts, run_id
from aviot.training.inspection import Inspection, inspect_checkpoint
from aviot.training.manifest import MANIFEST_FILE, Ledger, manifest_digest, read_ledger, read_manifest, write_ledger

logger = logging.getLogger(__name__)

Resume = bool | Literal["last-good"] | Path
"""False: a new run. True: the newest checkpoint. "last-good": the newest intact one. A path: that checkpoint."""


class OutputInUse(ResumeError):
    """A new run in a folder that already holds checkpoints. `problem` is the message without advice."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; call train with resume=True to continue from it, or choose another output")


class NothingToResume(ResumeError):
    """A run to resume from a folder that holds none. `problem` is the message without advice."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; call train with resume=False to start one")


class UnfitCheckpoint(ResumeError):
    """A checkpoint that is damaged or cannot be verified.

    `intact` is the newest checkpoint that could be used instead. `usable_if_named` is this checkpoint if
    it has no manifest and no visible damage: it may be resumed from by its path, unverified.
    """

    def __init__(self, inspected: Inspection, intact: Path | None, *, named: bool) -> None:
        self.intact = intact
        unverified = inspected.manifest is None and not inspected.problems
        self.usable_if_named = inspected.checkpoint if unverified and not named else None
        if unverified:
            problem = f"has no {MANIFEST_FILE}: an earlier version wrote it, or it is incomplete; it cannot be verified"
        else:
            problem = f"is damaged: {inspected.summary()}"
        other = f"the newest intact checkpoint is {intact}" if intact else "no other checkpoint is intact"
        super().__init__(f"{inspected.checkpoint} {problem}" + ("" if named else f"; {other}"))


class UnfitRun(ResumeError):
    """A run folder whose records were changed; `intact` is the newest checkpoint that could be used."""

    def __init__(self, problem: str, intact: Path | None) -> None:
        self.intact, self.usable_if_named = intact, None
        other = f"the newest intact checkpoint is {intact}" if intact else "no checkpoint is intact"
        super().__init__(f"{problem}; {other}")


def find_start_point(run: Path, *, resume: Resume) -> StartPoint:
    """Find the checkpoint to start from and verify all its files; raise ResumeError if there is none to use."""
    present = saving.checkpoints(run)
    if resume is False:
        if present:
            newest = next(reversed(present.values()))
            raise OutputInUse(f"{run} holds {newest.name}")
        try:
            read_starts(run)
        except ValueError as error:
            raise ResumeError(f"{error}; move it away, or choose another output") from error
        return StartPoint()
    if isinstance(resume, Path):
        return _named(run, resume)
    if not (run / RUN_FILE).is_file() and not present:
        raise NothingToResume(f"{run} holds no run to resume")
    return _last_good(run) if resume == "last-good" else _newest(run)


def set_aside_replaced(run: Path, start: StartPoint) -> None:
    """Rename what the run will write again: checkpoints after the start point, and a changed list of starts."""
    if start.record_is_lost and (run / RUN_FILE).exists():
        logger.warning("%s was changed; it is now %s", run / RUN_FILE, saving.move_aside(run / RUN_FILE))
    present = {} if start.checkpoint is None else saving.checkpoints(run)
    later = [path for step, path in present.items() if step >= start.step and path != start.checkpoint]
    ledger = {step: sha256 for step, sha256 in _readable_ledger(run).items() if step in present and step < start.step}
    digest = None if start.checkpoint not in present.values() else manifest_digest(present[start.step])
    write_ledger(run, ledger | ({} if digest is None else {start.step: digest}))
    for path in later:
        logger.warning("resuming from step %d: %s is now %s", start.step, path, saving.move_aside(path))


def _newest(run: Path) -> StartPoint:
    """Return the newest checkpoint if it and the run's records are as they were written."""
    candidates = _Candidates(run)
    if candidates.problem is not None:
        raise UnfitRun(candidates.problem, candidates.newest_intact())
    if not candidates.steps:
        return StartPoint(run=run_id(candidates.starts))
    newest = candidates.inspect(candidates.steps[0])
    if not newest.is_intact:
        raise UnfitCheckpoint(newest, candidates.newest_intact(), named=False)
    return candidates.start_point(newest)


def _last_good(run: Path) -> StartPoint:
    """Return the newest intact checkpoint, and log the problems of newer ones."""
    candidates = _Candidates(run)
    if candidates.problem is not None:
        logger.warning("%s", candidates.problem)
    for inspected in candidates.inspections():
        if inspected.is_intact:
            return candidates.start_point(inspected)
        logger.warning("skipping %s: %s", inspected.checkpoint, inspected.summary() or f"it has no {MANIFEST_FILE}")
    if candidates.steps or candidates.problem is not None:
        raise ResumeError(
            f"{run} holds no intact checkpoint; name one in another folder, or start a new run in another output"
        )
    return StartPoint(run=run_id(candidates.starts))


def _named(run: Path, checkpoint: Path) -> StartPoint:
    """Return a checkpoint by its path, in any folder; one without a manifest is used unverified, with a warning."""
    if not checkpoint.exists() and (run / checkpoint).is_dir():
        checkpoint = run / checkpoint
    if not checkpoint.is_dir():
        raise ResumeError(f"{checkpoint} is not a directory; name a checkpoint, such as {run / 'checkpoint-500'}")
    checkpoint = checkpoint.resolve()
    is_inside = checkpoint.parent == run.resolve()
    ledger = _readable_ledger(run) if is_inside else {}
    inspected = _compare_with_ledger(inspect_checkpoint(checkpoint), ledger)
    if inspected.problems:
        raise UnfitCheckpoint(inspected, None, named=True)
    try:
        starts, is_lost = read_starts(run), False
    except ValueError:
        starts, is_lost = [], True
    own, other = run_id(starts), _run_of(inspected)
    if other is None:
        logger.warning("%s has no %s: it is used without verification", checkpoint, MANIFEST_FILE)
    elif own is not None and other != own and inspected.step not in ledger:
        raise ResumeError(
            f"{checkpoint} belongs to another run than {run}; choose another output to continue from it, or name a "
            "checkpoint of this run"
        )
    path = run / checkpoint.name if is_inside else checkpoint
    return StartPoint(path, inspected.step, other or own, _processes_of(inspected), record_is_lost=is_lost)


class _Candidates:
    """The checkpoints of a run, newest first, with the run's own records of them."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.present = saving.checkpoints(run)
        self.steps = list(reversed(self.present))
        self.starts: Starts = []
        self.ledger: Ledger = {}
        self.record_is_lost = False
        self._inspected: dict[int, Inspection] = {}
        self.problem = self._read_records()

    def _read_records(self) -> str | None:
        """Read the run's records; returns the problem with them, if any."""
        problems = []
        try:
            self.starts = read_starts(self.run)
        except ValueError as error:
            self.record_is_lost = True
            problems.append(str(error))
        try:
            self.ledger = read_ledger(self.run)
        except ValueError as error:
            problems.append(str(error))
        if problems:
            return "; ".join(problems)
        if not self.starts:
            self.record_is_lost = True
            return f"{self.run / RUN_FILE} is missing"
        newest = max(self.ledger, default=-1)
        if newest not in self.present and newest > max(self.present, default=-1):
            return f"{saving.checkpoint_path(self.run, newest)} was written and no longer exists"
        resumed_from = self.starts[-1].get("checkpoint")
        if not self.present and resumed_from is not None:
            return f"{self.run} holds no checkpoint, and its run was resumed from {resumed_from}"
        return self._changed_starts()

    def _changed_starts(self) -> str | None:
        """Return a problem if the starts differ from those that the newest checkpoint of this run refers to."""
        for step in self.steps:
            checkpoint = self.present[step]
            try:
                reference = read_manifest(checkpoint).run
            except ValueError:
                continue
            if self.ledger.get(step) != manifest_digest(checkpoint) and reference.id != run_id(self.starts):
                continue  # a checkpoint of another run, or a changed manifest
            if not is_recorded(reference, self.starts):
                self.record_is_lost = True
                return f"{self.run / RUN_FILE} was changed since {checkpoint.name} was written"
            return None
        return None

    def inspect(self, step: int) -> Inspection:
        """Verify a checkpoint, once, and that this run wrote it."""
        if step not in self._inspected:
            inspected = _compare_with_ledger(inspect_checkpoint(self.present[step]), self.ledger)
            is_own = step in self.ledger or (not self.record_is_lost and _run_of(inspected) == run_id(self.starts))
            if inspected.manifest is not None and not is_own:
                inspected = replace(inspected, problems=(*inspected.problems, "it belongs to another run"))
            self._inspected[step] = inspected
        return self._inspected[step]

    def inspections(self) -> Iterator[Inspection]:
        """Verify one checkpoint after the other, newest first."""
        return map(self.inspect, self.steps)

    def newest_intact(self) -> Path | None:
        """Return the newest intact checkpoint."""
        return next((inspected.checkpoint for inspected in self.inspections() if inspected.is_intact), None)

    def start_point(self, inspected: Inspection) -> StartPoint:
        """Return the start point at an intact checkpoint."""
        run, processes = _run_of(inspected), _processes_of(inspected)
        return StartPoint(inspected.checkpoint, inspected.step, run, processes, record_is_lost=self.record_is_lost)


def _compare_with_ledger(inspected: Inspection, ledger: Ledger) -> Inspection:
    """Add a problem if a checkpoint's manifest is not the one in the run's ledger."""
    step = saving.step_of(inspected.checkpoint)
    if step not in ledger or inspected.manifest is None or ledger[step] == manifest_digest(inspected.checkpoint):
        return inspected
    return replace(inspected, problems=(*inspected.problems, f"{MANIFEST_FILE} is not the one that the run wrote"))


def _readable_ledger(run: Path) -> Ledger:
    """Return a run's ledger; an empty one if it cannot be read."""
    try:
        return read_ledger(run)
    except ValueError:
        return {}


def _processes_of(inspected: Inspection) -> int | None:
    return None if inspected.manifest is None else inspected.manifest.processes


def _run_of(inspected: Inspection) -> str | None:
    return None if inspected.manifest is None else inspected.manifest.run.id
