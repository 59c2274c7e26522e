"""Batches of a run and their journal: each is on disk before the next, and an interrupted run resumes where it was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from aviot.evaluation.manifest import differences, weight_hashes
from aviot.evaluation.progress import RunningScore
from aviot.utils.files import explain_write_errors
from aviot.utils.journal import Journal, read_rows
from aviot.utils.machine import commit, machine, versions
from aviot_lab.reproduce.progress import BatchCost, RunProgress

JOURNAL = "journal.jsonl"
TRY_AGAIN = "finished batches are kept: free some space or make it writable, and run the same command again"

Record = dict[str, Any]
Batch = TypeVar("Batch")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every kind of run."""

    setting: str
    seed: int
    out: Path
    device: torch.device

    @property
    def dtype(self) -> torch.dtype:
        """The type that models run in."""
        return torch.float32 if self.device.type == "cpu" else torch.bfloat16

    def identity(self, size: Any, folders: Mapping[Any, Path]) -> dict[str, Any]:
        """Return what determines the answers of every kind of run; `size` is a dataclass of plain values."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(size).items()}
        return {
            "size": plain,
            "seed": self.seed,
            "models": {name: weight_hashes(folder) for name, folder in folders.items()},
            "commit": commit(),
            "versions": versions(),
            "device": machine(self.device)["device"],
            "dtype": str(self.dtype).removeprefix("torch."),
        }


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
