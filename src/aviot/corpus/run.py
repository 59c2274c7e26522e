"""Run a batch: read the questions, group them by video, have workers of Ray Data answer them, write each answer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.corpus.answers import AnswersFile, answered, failed
from aviot.corpus.config import CorpusConfig
from aviot.corpus.ray_workers import work_on
from aviot.corpus.work import VideoWork
from aviot.evaluation.batching import batch_by_video
from aviot.evaluation.progress import Display
from aviot.evaluation.reading import read_items
from aviot.utils.journal import Row

NOT_ANSWERED = "its worker ended again and again, perhaps for lack of memory; see the log of Ray"

Workers = Callable[[CorpusConfig, Sequence[VideoWork]], Iterable[tuple[int, dict[str, Any]]]]
"""Answers work: yields the number and the evaluation's row of each question, in any order."""


@dataclass(frozen=True)
class CorpusResult:
    """The counts of a finished batch, and the rows of questions that could not be answered."""

    questions: int
    videos: int
    failed: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "questions": self.questions,
            "videos": self.videos,
            "answered": self.questions - len(self.failed),
            "failed": [{name: row[name] for name in ("id", "video", "failed")} for row in self.failed],
        }


def answer_corpus(
    config: CorpusConfig,
    *,
    resume: bool = False,
    retry: bool = False,
    report: Callable[[str], None] = lambda _: None,
    workers: Workers = work_on,
) -> CorpusResult:
    """Answer all questions, or those that are missing; `retry` asks failed ones again.

    Every answer is written before the next one is waited for. The file has them in the order of the questions when all
    are there.
    """
    report("reading questions")
    items = read_items(config.questions, videos=config.videos)
    report("hashing weights")
    identity = config.identity(items)
    by_video = batch_by_video(items.items, items.folder, [config.setting], config.together)
    with AnswersFile(config.out, items.items, identity, resume=resume) as file:
        if retry:
            file.drop_failed()
        done = frozenset(file.rows)
        work = [VideoWork.of(asked, items.items, config.instructions, done) for asked in by_video]
        work = [one for one in work if one.batches]
        if work:
            report("starting workers")
        with Display("answered", len(items), len(done), silent=False) as display:
            for number, row in _rows(workers(config, work) if work else (), items.items):
                if number not in done and file.add(row):
                    display.advance(f"{len(file.failed)} failed" if file.failed else "")
            for number in sorted(set(range(len(items))) - set(file.rows)):
                file.add(failed(number, items.items[number], NOT_ANSWERED))
                display.advance(f"{len(file.failed)} failed")
        file.finish()
        return CorpusResult(len(items), len(by_video), tuple(file.failed))


def _rows(results: Iterable[tuple[int, dict[str, Any]]], items: Sequence[Any]) -> Iterator[tuple[int, Row]]:
    for number, result in results:
        yield number, answered(number, items[number], result)
