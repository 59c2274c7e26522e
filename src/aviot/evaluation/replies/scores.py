"""Options that a reply weighs against each other: "A: 70 %, B: 30 %", "A - 0.1, B - 0.9", "C > A > B"."""

import itertools
import re
from collections.abc import Sequence

from aviot.evaluation.replies.mention import MASK, Mention

_SCORE = re.compile(
    rf"[\s)\].:\-]*{MASK}*[\s)\].]*(?:[:=(|,\-]|\u2192|=>|\b(?:is|has|gets|at|with)\b)*[\s(]*(?:an?\s+)?(?:about\s+|~\s*)?"
    r"(?:(?P<percent>\d+(?:\.\d+)?)\s*(?:%|percent\b)(?!\s+of\b)|(?P<part>\d+(?:\.\d+)?)\s*/\s*(?P<whole>\d+)\b|"
    r"(?P<share>[01]?\.\d+)(?![\d%.]))",
    re.IGNORECASE,
)
_ABOVE = re.compile(r"[\s)\].]*(?:>+|\u227b)[\s(\[]*")


def weighed(text: str, mentions: Sequence[Mention]) -> dict[int, bool]:
    """Return the verdict of a reply's scores or ranking on the mentions, by their starts; empty where there is none.

    The one option with the highest score is affirmed, the others are ruled out; nothing is said where two are highest.
    """
    return _by_rank(text, mentions) or _by_score(text, mentions)


def _by_score(text: str, mentions: Sequence[Mention]) -> dict[int, bool]:
    scores: dict[int, tuple[str, float]] = {}
    for mention in mentions:
        if found := _SCORE.match(text, mention.end):
            scores[mention.start] = _value(found)
    options = {mention.option for mention in mentions if mention.start in scores}
    kinds = {kind for kind, _ in scores.values()}
    if len(options) < 2 or len(options) < len(scores) or len(kinds) > 1:
        return {}
    highest = max(value for _, value in scores.values())
    if sum(value == highest for _, value in scores.values()) > 1:
        return {}
    return {start: value == highest for start, (_, value) in scores.items()}


def _value(found: re.Match[str]) -> tuple[str, float]:
    """Return the kind of a score, and the score."""
    if found["percent"]:
        return "percent", float(found["percent"])
    if found["share"]:
        return "share", float(found["share"])
    return f"of {found['whole']}", float(found["part"])


def _by_rank(text: str, mentions: Sequence[Mention]) -> dict[int, bool]:
    """Return the verdict of the only ranking: each option stands above the next."""
    ranked: list[Mention] = []
    for upper, lower in itertools.pairwise(mentions):
        if not _ABOVE.fullmatch(text, upper.end, lower.start):
            continue
        if ranked and ranked[-1] is not upper:
            return {}
        ranked += [lower] if ranked else [upper, lower]
    if len({mention.option for mention in ranked}) < len(ranked):
        return {}
    return {mention.start: place == 0 for place, mention in enumerate(ranked)}
