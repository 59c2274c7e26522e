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

from aviot.evaluation.batching import Key
from aviot.evaluation.endpoint import Endpoint, EndpointError
from aviot.evaluation.item import Item
from aviot.evaluation.results import ANSWERED, settled
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
LONGEST = 2_000
"""Characters of a verdict at most; nesting that could exhaust a parser takes more."""

_OBJECT = re.compile(r"\{[^{}]*\}")


GIVEN_UP_AFTER = 24
"""Answers in a row that got no verdict, after which a judge is asked no more; a resumed run begins again."""


@dataclass(frozen=True)
class Verdict:
    """What a judge said."""

    correct: bool
    score: float


def judge_messages(question: str, answer: str, prediction: str) -> list[dict[str, str]]:
    """The chat that asks for a verdict."""
    asked = USER.format(question=question, answer=answer, prediction=prediction)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]


def parse_verdict(reply: str) -> Verdict:
    """The one dictionary in a reply, as JSON or as Python writes it; ValueError where there is no clear verdict."""
    found = _OBJECT.findall(reply)
    if len(found) != 1:
        raise ValueError(f"expected one dictionary with pred and score, got {len(found)} in {reply[:120]!r}")
    said = _dictionary(found[0]) if len(found[0]) <= LONGEST else None
    if said is None:
        raise ValueError(f"expected a dictionary with pred and score, got {reply[:120]!r}")
    word = said.get("pred")
    if not isinstance(word, str) or word.strip().lower() not in ("yes", "no"):
        raise ValueError(f"pred must be yes or no, got {word!r:.80}")
    score = said.get("score")
    if isinstance(score, str) and re.fullmatch(r"\s*\d(?:\.\d+)?\s*", score):
        score = float(score)
    number = as_number(score)
    if number is None or not 0 <= number <= 5:
        raise ValueError(f"score must be a number from 0 to 5, got {said.get('score')!r:.80}")
    return Verdict(word.strip().lower() == "yes", number)


def _dictionary(text: str) -> dict[Any, Any] | None:
    """A dictionary as JSON or as Python writes it; None for what is none."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        try:
            said = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
    return said if isinstance(said, dict) else None


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
