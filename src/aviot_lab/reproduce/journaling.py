"""Batches of a run and their journal: each is on disk before the next, and an interrupted run resumes where it was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from aviot.evaluation.manifest import differences
from aviot.evaluation.progress import RunningScore
from aviot.utils.files import explain_write_errors
from aviot.utils.journal import Journal, read_rows
from aviot_lab.reproduce.progress import BatchCost, RunProgress

JOURNAL = "journal.jsonl"
TRY_AGAIN = "finished batches are kept: free some space or make it writable, and run the same command again"

Record = dict[str, Any]
Batch = TypeVar("Batch")


@dataclass(frozen=True, kw_only=True)
class BatchRun(Generic[Batch]):
    """The batches of a run in its folder.

    `identity` is everything that determines the answers, `answer` returns a batch's record, with right answers by row
    under "right" and its seconds, and `check` raises ValueError for records on disk that are not the run's first.
    """

    out: Path
    identity: Mapping[str, Any]
    batches: Sequence[Batch]
    costs: Sequence[BatchCost]
    answer: Callable[[Batch], Record]
    check: Callable[[Sequence[Record], Path], None]

    def finish(self, progress: RunProgress) -> list[Record]:
        """Answer every batch that is not in the journal yet; return the records of all."""
        path = self.out / JOURNAL
        with explain_write_errors(path, TRY_AGAIN), Journal(path, first=self.identity) as journal:
            rows = read_rows(path)
            records = self._finished(rows, path)
            progress.begin(self.costs, [record["seconds"] for record in records])
            score = RunningScore()
            for record in records:
                _count(score, record)
            if not rows:
                journal.add(self.identity)
            for batch in self.batches[len(records) :]:
                progress.drawing()
                record = self.answer(batch)
                journal.add(record)
                records.append(record)
                _count(score, record)
                progress.finish_batch(record["seconds"], score)
        return records

    def _finished(self, rows: Sequence[Record], path: Path) -> list[Record]:
        """Return the records on disk; raise ValueError if they are of another run."""
        head, *records = rows or [dict(self.identity)]
        if "format" not in head:
            raise ValueError(f"{path} is not a journal of aviot reproduce; name another folder with -o")
        if changed := differences(head, self.identity):
            raise ValueError(
                f"the run in {self.out} was started with other settings: {'; '.join(changed)}. "
                "Put them back, or name another folder with -o"
            )
        self.check(records, path)
        return records


def _count(score: RunningScore, record: Record) -> None:
    for key, right in record["right"].items():
        for good in right:
            score.add({"setting": key, "correct": bool(good)})
