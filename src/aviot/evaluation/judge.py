"""Judging open answers with a language model by the ActivityNet-QA protocol: correct or not, and a score from 0 to 5.

The protocol fixes what is asked for and how it is counted; the prompt's wording is our own. Published figures
also depend on their wording, so compare with those through lmms-eval.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

from aviot.evaluation.batching import RowKey
from aviot.evaluation.endpoint import Endpoint, EndpointError
from aviot.evaluation.item import Item
from aviot.evaluation.results import ANSWERED, resolve_rows
from aviot.utils.journal import Row
from aviot.utils.values import as_number

SYSTEM = (
    "You grade answers to questions about videos. You are given a question, the true answer and what a model said. "
    "Decide whether the model's answer means the same as the true one. Other words for the same thing are right; an "
    "answer that says something else, or says nothing, is wrong."
)
USER = (
    "Question: {question}\nTrue answer: {answer}\nModel's answer: {prediction}\n\n"
    'Reply with one JSON object and nothing else, with two keys: "pred" is "yes" if the two mean the same and '
    '"no" if not, and "score" is a whole number from 0 (nothing in common) to 5 (the same meaning), like '
    '{{"pred": "yes", "score": 4}}.'
)
MAX_VERDICT_CHARS = 2_000
"""Longest verdict that is parsed; shorter ones cannot nest deeply enough to exhaust the parser."""

_OBJECT = re.compile(r"\{[^{}]*\}")


MAX_FAILURES_IN_A_ROW = 24
"""Answers in a row without a verdict after which the judge is no longer asked; a resumed run asks it again."""


@dataclass(frozen=True)
class Verdict:
    """A judge's decision on one answer."""

    correct: bool
    score: float


def judge_messages(question: str, answer: str, prediction: str) -> list[dict[str, str]]:
    """Return the chat messages that request a verdict."""
    user = USER.format(question=question, answer=answer, prediction=prediction)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


def parse_verdict(reply: str) -> Verdict:
    """Parse the only dictionary in a reply (JSON or Python syntax); raise ValueError if it is not a clear verdict."""
    found = _OBJECT.findall(reply)
    if len(found) != 1:
        raise ValueError(f"expected one dictionary with pred and score, got {len(found)} in {reply[:120]!r}")
    values = _dictionary(found[0]) if len(found[0]) <= MAX_VERDICT_CHARS else None
    if values is None:
        raise ValueError(f"expected a dictionary with pred and score, got {reply[:120]!r}")
    word = values.get("pred")
    if not isinstance(word, str) or word.strip().lower() not in ("yes", "no"):
        raise ValueError(f"pred must be yes or no, got {word!r:.80}")
    score = values.get("score")
    if isinstance(score, str) and re.fullmatch(r"\s*\d(?:\.\d+)?\s*", score):
        score = float(score)
    number = as_number(score)
    if number is None or not 0 <= number <= 5:
        raise ValueError(f"score must be a number from 0 to 5, got {values.get('score')!r:.80}")
    return Verdict(word.strip().lower() == "yes", number)


def _dictionary(text: str) -> dict[Any, Any] | None:
    """Return a dictionary in JSON or Python syntax; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def needs_verdict(row: Mapping[str, Any], items: Sequence[Item]) -> bool:
    """Return whether a row answers an open question whose right answer is known."""
    return row["status"] == ANSWERED and row["kind"] == "open" and items[row["item"]].has_answer


def judge_rows(endpoint: Endpoint, rows: Iterable[Row], items: Sequence[Item]) -> Iterator[Row]:
    """Yield one verdict row per result row, in order of completion; `unjudged` says why there is no verdict.

    After a permanent error, or many failures in a row, the remaining answers are not sent.
    """
    failures, stopped = _FailureCounter(), Event()

    def wait(seconds: float) -> None:
        if stopped.wait(seconds):
            raise EndpointError("interrupted")

    def judge(row: Row) -> Row:
        item = items[row["item"]]
        key = {"item": row["item"], "setting": row["setting"]}
        if failures.stop_reason is not None:
            return key | {"unjudged": failures.stop_reason}
        messages = judge_messages(item.question, " / ".join(item.answers), row["prediction"])
        try:
            verdict = endpoint.complete(messages, parse_verdict, wait)
        except EndpointError as error:
            failures.failed(error)
            return key | {"unjudged": str(error)}
        failures.succeeded()
        return key | {"correct": verdict.correct, "score": verdict.score}

    pool = ThreadPoolExecutor(endpoint.parallel)
    try:
        for done in as_completed([pool.submit(judge, row) for row in rows]):
            yield done.result()
    finally:  # on interruption, drop unsent requests and end the waits between retries
        stopped.set()
        pool.shutdown(cancel_futures=True)


class _FailureCounter:
    """Counts failures in a row and sets `stop_reason` once the judge should no longer be asked.

    Without it, retrying each of thousands of answers for minutes would take days.
    """

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self._failures, self._lock = 0, Lock()

    def succeeded(self) -> None:
        """Reset the count."""
        with self._lock:
            self._failures = 0

    def failed(self, error: EndpointError) -> None:
        """Count a failure; stop after MAX_FAILURES_IN_A_ROW, or at once if the error is permanent."""
        with self._lock:
            self._failures += 1
            if self.stop_reason is None and error.permanent:
                self.stop_reason = str(error)
            if self.stop_reason is None and self._failures >= MAX_FAILURES_IN_A_ROW:
                self.stop_reason = f"not asked, after {self._failures} answers in a row without a verdict: {error}"


def verdict_by_key(rows: Iterable[Row]) -> dict[RowKey, Row]:
    """Return the verdict row of each key; a verdict replaces an earlier `unjudged`."""
    return resolve_rows(rows, lambda row: "unjudged" in row)


def with_verdict(row: Row, verdict: Mapping[str, Any] | None) -> Row:
    """Return a result row with its verdict under `judge`."""
    if verdict is None:
        return row
    return row | {"judge": {name: value for name, value in verdict.items() if name not in ("item", "setting")}}
