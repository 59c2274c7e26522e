"""Which checkpoint a run goes on from: one that is as it was written, and of this run."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from aviot.training import ledger, manifest, record, saving
from aviot.training.identity import ResumeError
from aviot.training.inspection import Inspection, inspect_checkpoint
from aviot.training.record import Start

logger = logging.getLogger(__name__)

Resume = bool | Literal["last-good"] | Path
"""From nothing, from the newest checkpoint, from the newest whole one, or from the one that is named."""


class UnfitCheckpoint(ResumeError):
    """A checkpoint that a run is not resumed from as it is; `whole` is the newest one that it could go on from."""

    def __init__(self, found: Inspection, whole: Path | None, *, named: bool) -> None:
        self.whole = whole
        unverified = found.manifest is None and not found.problems
        self.can_be_named = found.checkpoint if unverified and not named else None
        if unverified:
            said = f"has no {manifest.FILE}: an earlier version wrote it, or it is not all there; it cannot be verified"
        else:
            said = f"is damaged: {found.told()}"
        offer = "" if named else f"; the newest whole checkpoint is {whole}" if whole else "; no other one is whole"
        super().__init__(f"{found.checkpoint} {said}{offer}")


class UnfitRecord(ResumeError):
    """A run whose record beside its checkpoints was changed; `whole` is the newest one that it could go on from."""

    def __init__(self, problem: str, whole: Path | None) -> None:
        self.whole, self.can_be_named = whole, None
        offer = f"the newest whole checkpoint is {whole}" if whole else "no checkpoint is whole"
        super().__init__(f"{problem}; {offer}")


def find_start(run: Path, *, resume: Resume) -> Start:
    """Find what a run goes on from; every file of it has been read and compared with what was written."""
    there = saving.checkpoints(run)
    if resume is False:
        if there:
            newest = next(reversed(there.values()))
            raise ResumeError(f"{run} holds {newest.name}; add --resume to go on from it, or choose another output")
        try:
            record.read_starts(run)
        except ValueError as error:
            raise ResumeError(f"{error}; move it away, or choose another output") from error
        return Start()
    if isinstance(resume, Path):
        return _named(run, resume)
    if not (run / record.RUN).is_file() and not there:
        raise ResumeError(f"{run} holds no run to resume; leave out --resume to begin one")
    return _last_good(run) if resume == "last-good" else _newest(run)


def clear_way(run: Path, start: Start) -> None:
    """Set aside what the run is about to write anew: later checkpoints than its start, a record that cannot be read."""
    if start.record_is_lost and (run / record.RUN).exists():
        logger.warning("%s was changed and is now %s", run / record.RUN, saving.move_aside(run / record.RUN))
    there = {} if start.checkpoint is None else saving.checkpoints(run)
    leaving = [path for step, path in there.items() if step >= start.step and path != start.checkpoint]
    known = {step: found for step, found in _known(run).items() if step in there and step < start.step}
    digest = None if start.checkpoint not in there.values() else ledger.manifest_digest(there[start.step])
    ledger.write_ledger(run, known | ({} if digest is None else {start.step: digest}))
    for path in leaving:
        aside = saving.move_aside(path)
        logger.warning("the run goes on from step %d: what it had after that is now %s", start.step, aside)


def _newest(run: Path) -> Start:
    """Return the newest checkpoint if it, and everything beside it, is as it was written."""
    found = _Candidates(run)
    if found.problem is not None:
        raise UnfitRecord(found.problem, found.whole())
    if not found.steps:
        return Start(run=record.run_id(found.starts))
    newest = found.inspect(found.steps[0])
    if not newest.is_whole:
        raise UnfitCheckpoint(newest, found.whole(), named=False)
    return found.start(newest)


def _last_good(run: Path) -> Start:
    """Return the newest checkpoint that is whole, saying what is wrong with newer ones."""
    found = _Candidates(run)
    if found.problem is not None:
        logger.warning("%s", found.problem)
    for one in found.inspections():
        if one.is_whole:
            return found.start(one)
        logger.warning("%s is passed over: %s", one.checkpoint, one.told() or f"it has no {manifest.FILE}")
    if found.steps or found.problem is not None:
        raise ResumeError(f"{run} holds no whole checkpoint; name one elsewhere, or begin again in another output")
    return Start(run=record.run_id(found.starts))


def _named(run: Path, checkpoint: Path) -> Start:
    """Return a checkpoint that was named, wherever it is; one without a manifest is taken as it is, which is said."""
    if not checkpoint.exists() and (run / checkpoint).is_dir():
        checkpoint = run / checkpoint
    if not checkpoint.is_dir():
        raise ResumeError(f"{checkpoint} is not a directory; name a checkpoint, such as {run / 'checkpoint-500'}")
    checkpoint = checkpoint.resolve()
    inside = checkpoint.parent == run.resolve()
    recorded = _known(run) if inside else {}
    found = _compared(inspect_checkpoint(checkpoint), recorded)
    if found.problems:
        raise UnfitCheckpoint(found, None, named=True)
    try:
        starts, lost = record.read_starts(run), False
    except ValueError:
        starts, lost = [], True
    known = record.run_id(starts)
    theirs = _run_of(found)
    if theirs is None:
        logger.warning("%s has no %s: it is taken as it is, unverified", checkpoint, manifest.FILE)
    elif known is not None and theirs != known and found.step not in recorded:
        raise ResumeError(
            f"{checkpoint} is of another run than {run}; choose another output to go on from it, or name one of its own"
        )
    where = run / checkpoint.name if inside else checkpoint
    return Start(where, found.step, theirs or known, _processes_of(found), record_is_lost=lost)


class _Candidates:
    """The checkpoints of a run, newest first, with what its own records say of them."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.there = saving.checkpoints(run)
        self.steps = list(reversed(self.there))
        self.starts: record.Starts = []
        self.known: ledger.Ledger = {}
        self.record_is_lost = False
        self._inspected: dict[int, Inspection] = {}
        self.problem = self._read_records()

    def _read_records(self) -> str | None:
        """Read the run's records; returns what is wrong with them."""
        problems = []
        try:
            self.starts = record.read_starts(self.run)
        except ValueError as error:
            self.record_is_lost = True
            problems.append(str(error))
        try:
            self.known = ledger.read_ledger(self.run)
        except ValueError as error:
            problems.append(str(error))
        if problems:
            return "; ".join(problems)
        if not self.starts:
            self.record_is_lost = True
            return f"{self.run / record.RUN} is missing"
        newest = max(self.known, default=-1)
        if newest not in self.there and newest > max(self.there, default=-1):
            return f"{saving.whole_path(self.run, newest)} was written and is no longer there"
        came_from = self.starts[-1].get("checkpoint")
        if not self.there and came_from is not None:
            return f"{self.run} holds no checkpoint, and had gone on from {came_from}"
        return self._changed_record()

    def _changed_record(self) -> str | None:
        """Return which part of the starts differs from what the newest checkpoint of this run knew of."""
        for step in self.steps:
            try:
                told = manifest.read_manifest(self.there[step]).run
            except ValueError:
                continue
            if self.known.get(step) != ledger.manifest_digest(self.there[step]) and told.id != record.run_id(
                self.starts
            ):
                continue  # of another run, or changed itself
            if not record.is_recorded(told, self.starts):
                self.record_is_lost = True
                return f"{self.run / record.RUN} was changed since {self.there[step].name} was written"
            return None
        return None

    def inspect(self, step: int) -> Inspection:
        """Inspect a checkpoint once, and whether it is the one that this run wrote at its step."""
        if step not in self._inspected:
            found = _compared(inspect_checkpoint(self.there[step]), self.known)
            own = step in self.known or (not self.record_is_lost and _run_of(found) == record.run_id(self.starts))
            if found.manifest is not None and not own:
                found = replace(found, problems=(*found.problems, "it is of another run"))
            self._inspected[step] = found
        return self._inspected[step]

    def inspections(self) -> Iterator[Inspection]:
        """Inspect one after another, newest first."""
        return map(self.inspect, self.steps)

    def whole(self) -> Path | None:
        """Return the newest whole checkpoint."""
        return next((one.checkpoint for one in self.inspections() if one.is_whole), None)

    def start(self, found: Inspection) -> Start:
        """Return a start from one that is whole."""
        processes = _processes_of(found)
        return Start(found.checkpoint, found.step, _run_of(found), processes, record_is_lost=self.record_is_lost)


def _compared(found: Inspection, known: ledger.Ledger) -> Inspection:
    """Add a problem if a run's checkpoint has not the manifest that the run wrote."""
    step = saving.step_of(found.checkpoint)
    if step not in known or found.manifest is None or known[step] == ledger.manifest_digest(found.checkpoint):
        return found
    return replace(found, problems=(*found.problems, f"{manifest.FILE} is not the one that the run wrote"))


def _known(run: Path) -> ledger.Ledger:
    """Return what a run has written, as far as its record can be read."""
    try:
        return ledger.read_ledger(run)
    except ValueError:
        return {}


def _processes_of(found: Inspection) -> int | None:
    return None if found.manifest is None else found.manifest.processes


def _run_of(found: Inspection) -> str | None:
    return None if found.manifest is None else found.manifest.run.id
