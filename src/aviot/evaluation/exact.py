"""Exact match of open answers."""

from collections.abc import Iterable

from aviot.evaluation.text import normal


def is_exact(reply: str, answers: Iterable[str]) -> bool:
    """Whether a reply is one of the answers, case, articles, punctuation and the spelling of small numbers aside."""
    said = normal(reply)
    return bool(said) and any(said == normal(answer) for answer in answers)
