"""Numbers in replies: bounds ("more than 3", "3 or more"), ranges ("3 to 5"), parts ("two hundred"), and totals."""

import re
from typing import Literal

from aviot.evaluation.replies.mention import REACH
from aviot.evaluation.text import NUMBERS

Bound = Literal["none", "lower", "upper", "range", "part"]

_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_NUMBER = rf"(?:\d+(?:[.,]\d+)*|\b(?:{'|'.join(NUMBERS)}|{_TENS}|once|twice|thrice)\b)"
_LOWER = (
    r"\b(?:more|greater|higher|larger|bigger|longer|older|later|further|better)\s+than|\bat\s+(?:the\s+)?(?:very\s+)?least|"
    r"\b(?:over|above|beyond|exceed(?:s|ed|ing)?)|\bminimum\s+(?:of|is)|>=?|\u2265|\u2a7e"
)
_UPPER = (
    r"\b(?:\w+\s+)?than|\bat\s+(?:the\s+)?(?:very\s+)?most|\b(?:under|below|up\s+to|within)|"
    r"\bmaximum\s+(?:of|is)|<=?|\u2264|\u2a7d"
)
_BEFORE = re.compile(
    rf"(?P<not>\b(?:no|not|n't)\s+)?(?:(?P<lower>{_LOWER})|(?P<upper>{_UPPER}))\s*(?:the\s+|exactly\s+)?$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:\s+(?!or\b|and\b)[^\W\d_]+)?(?:(?P<lower>\s*\+(?!\s*\d)|\s+or\s+(?:more|greater|higher|over|above|later|longer)\b|"
    r"\s+and\s+(?:more|above|over|up)\b|\s*,?\s+at\s+(?:the\s+)?(?:very\s+)?least\b|\s+minimum\b)|"
    r"(?P<upper>\s+or\s+(?:less|fewer|lower|under|below|earlier|shorter)\b|\s+and\s+(?:under|below)\b|"
    r"\s*,?\s+at\s+(?:the\s+)?(?:very\s+)?most\b|\s+(?:max(?:imum)?|tops)\b))",
    re.IGNORECASE,
)
_TO = r"\s*(?:-|\bto\b|\bthrough\b)\s*"
_RANGE_AFTER = re.compile(rf"(?:\s+(?!to\b|and\b)[^\W\d_]+)?{_TO}{_NUMBER}", re.IGNORECASE)
_RANGE_BEFORE = re.compile(rf"(?<![\w.]){_NUMBER}(?:\s+[^\W\d_]+)?{_TO}$", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween\s+$", re.IGNORECASE)
_BETWEEN_AND = re.compile(rf"\bbetween\s+{_NUMBER}(?:\s+[^\W\d_]+)?\s+and\s+$", re.IGNORECASE)
_AND_NUMBER = re.compile(rf"(?:\s+[^\W\d_]+)?\s+and\s+{_NUMBER}", re.IGNORECASE)
_PART_AFTER = re.compile(
    r"[\s-]+(?:hundred|thousand|million|billion|dozen|half|halves|thirds?|quarters?|fourths?|fifths?|tenths?|point)\b|"
    rf"(?<=ty)[\s-]+(?:{'|'.join(NUMBERS)})\b",
    re.IGNORECASE,
)
_PART_BEFORE = re.compile(rf"\b(?:{_TENS}|(?:hundred|thousand)(?:\s+and)?|point)[\s-]+$", re.IGNORECASE)
_STARTS = re.compile(_NUMBER, re.IGNORECASE)
_TOTAL_BEFORE = re.compile(
    r"(?:=|\b(?:equals?|equalling|makes?|making|gives?|giving|add(?:s|ing)?\s+up\s+to|sums?\s+(?:up\s+)?to|"
    r"totall?(?:s|ing)?(?:\s+(?:of|is|are|to))?|in\s+total,?\s+there\s+(?:are|is|were|was)))\s*:?\s*$",
    re.IGNORECASE,
)
_TOTAL_AFTER = re.compile(r"(?:\s+[^\W\d_]+){0,2}?\s+(?:in\s+total|altogether|in\s+all|total)\b", re.IGNORECASE)


def starts_with_number(option: str) -> bool:
    """Return whether an option opens with a number, in digits or letters."""
    return _STARTS.match(option.strip()) is not None


def bound_at(text: str, start: int, end: int) -> Bound:
    """Return which kind of bound the number is that a range of a text starts with; "none" for a count.

    "part": it belongs to a longer number ("two hundred", "twenty-two", "one half").
    """
    number = _STARTS.match(text, start, end)
    if number is None:
        return "none"
    first = max(0, start - REACH)
    if _between(text, first, start, end):
        return "range"
    if _PART_BEFORE.search(text, first, start) or _PART_AFTER.match(text, number.end()):
        return "part"
    ends = sorted({number.end(), end})
    if any(_RANGE_AFTER.match(text, place) for place in ends) or _RANGE_BEFORE.search(text, first, start):
        return "range"
    if before := _BEFORE.search(text, first, start):
        return "lower" if bool(before["lower"]) != bool(before["not"]) else "upper"
    after = next((found for place in ends if (found := _AFTER.match(text, place))), None)
    if after is None:
        return "none"
    return "lower" if after["lower"] else "upper"


def _between(text: str, first: int, start: int, end: int) -> bool:
    low = _BETWEEN.search(text, first, start) and _AND_NUMBER.match(text, end)
    return bool(low or _BETWEEN_AND.search(text, first, start))


def is_total(text: str, start: int, end: int) -> bool:
    """Return whether a number at a place of a reply is what others add up to: "2 + 1 = 3", "so 3 in total"."""
    return bool(_TOTAL_BEFORE.search(text, max(0, start - REACH), start) or _TOTAL_AFTER.match(text, end))
