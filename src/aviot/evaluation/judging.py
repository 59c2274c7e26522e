"""Open answers put to a judge: every verdict on disk as it comes, and what got none reported as such."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event, Lock
from typing import Any

from aviot.evaluation.endpoint import Endpoint, EndpointError
from aviot.evaluation.item import Item
from aviot.evaluation.judge import judge_messages, parse_verdict
from aviot.evaluation.plan import Key
from aviot.evaluation.rows import ANSWERED, settled
from aviot.utils.journal import Row

GIVEN_UP_AFTER = 24
"""Answers in a row that got no verdict, after which a judge is asked no more; a resumed run begins again."""


def wants_judge(row: Mapping[str, Any], items: Sequence[Item]) -> bool:
    """Whether a row is an answer to an open question whose right answer is known."""
    return row["status"] == ANSWERED and row["kind"] == "open" and items[row["item"]].has_answer


def judge_rows(endpoint: Endpoint, rows: Iterable[Row], items: Sequence[Item]) -> Iterator[Row]:
    """A verdict, or why there is none, for each row, as they come; a judge that turns everyone away is left alone."""
    patience, ended = _Patience(), Event()

    def wait(seconds: float) -> None:
        if ended.wait(seconds):
            raise EndpointError("interrupted")

    def judge(row: Row) -> Row:
        item = items[row["item"]]
        told = {"item": row["item"], "setting": row["setting"]}
        if patience.lost is not None:
            return told | {"unjudged": patience.lost}
        messages = judge_messages(item.question, " / ".join(item.answers), row["prediction"])
        try:
            verdict = endpoint.complete(messages, parse_verdict, wait)
        except EndpointError as error:
            patience.failed(error)
            return told | {"unjudged": str(error)}
        patience.worked()
        return told | {"correct": verdict.correct, "score": verdict.score}

    pool = ThreadPoolExecutor(endpoint.parallel)
    try:
        for done in as_completed([pool.submit(judge, row) for row in rows]):
            yield done.result()
    finally:  # an interrupt waits neither for requests that have not been sent nor between two of them
        ended.set()
        pool.shutdown(cancel_futures=True)


class _Patience:
    """Counts failures in a row: whoever waits ten minutes for each of thousands of answers waits for ever."""

    def __init__(self) -> None:
        self.lost: str | None = None
        self._failures, self._lock = 0, Lock()

    def worked(self) -> None:
        """Count from the beginning."""
        with self._lock:
            self._failures = 0

    def failed(self, error: EndpointError) -> None:
        """Count a failure; after some, or one that will not pass, the judge is asked no more."""
        with self._lock:
            self._failures += 1
            if self.lost is None and error.hopeless:
                self.lost = str(error)
            if self.lost is None and self._failures >= GIVEN_UP_AFTER:
                self.lost = f"not asked, after {self._failures} answers in a row without a verdict: {error}"


def verdicts(rows: Iterable[Row]) -> dict[Key, Row]:
    """The verdict of each row; one that was judged at last replaces one that was not."""
    return settled(rows, lambda row: "unjudged" in row)


def with_verdict(row: Row, verdict: Mapping[str, Any] | None) -> Row:
    """A row beside what the judge said of it."""
    if verdict is None:
        return row
    return row | {"judge": {name: value for name, value in verdict.items() if name not in ("item", "setting")}}
