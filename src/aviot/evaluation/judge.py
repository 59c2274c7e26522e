"""The ActivityNet-QA protocol: a language model says whether a prediction means the answer, and how much, 0 to 5.

The protocol is what is asked for and how it is counted; the wording is ours. Published figures depend on theirs too, so
compare with those through lmms-eval.
"""

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

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
