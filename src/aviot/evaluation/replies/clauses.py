"""Split a reply into clauses: where each begins and ends, how it is connected, and whether it is a question."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

MASK = "\ue000"
"""Replaces each character of an option's text, so that no letter is found inside it."""

REACH = 120
"""Characters around a mention that are searched for words about it; the bound keeps long replies fast."""

_CONNECTIVES = (
    r"but|however|yet|nevertheless|nonetheless|although|though|even\s+though|whereas|because|since|so|therefore|thus|"
    r"hence|instead|no,?\s+wait|wait,?\s+no|and\s+not|rather\s+than|as\s+opposed\s+to|"
    r"(?:over|than)\s+(?:options?\s+)?(?-i:[A-Z])"
)
_BOUNDARY = re.compile(
    rf"(?P<end>[.!?]+(?=[\s)\]]|$)|\n+|;|(?<=[\u3400-\u9fff])[.!?])"
    rf"|,?\s+(?=(?:{_CONNECTIVES})\b)|\s+-+\s+|,(?=[\u3400-\u9fff])|[,.]?(?=(?:\u4f46\u662f?|\u4e0d\u8fc7|\u7136\u800c|\u6240\u4ee5|\u56e0\u4e3a))",
    re.IGNORECASE,
)
_LEAD_IN = (
    r"[\s,]*(?:(?:but|no|oh|oops|whoops|hm+|well|wait|and|however|ok|okay|sorry|"
    r"\u4f46\u662f?|\u4e0d\u8fc7|\u7136\u800c)[\s,.!]*)*"
)
_CONTRAST = re.compile(
    r"[\s,]*(?:but|however|yet|nevertheless|nonetheless|instead|\u4f46|\u4e0d\u8fc7|\u7136\u800c)", re.IGNORECASE
)
_SECOND_LOOK = (
    r"(?:second|further|closer|careful|more\s+careful|another|deeper|due)?\s*"
    r"(?:thoughts?|reflection|inspection|look|examination|consideration|review|viewing|analysis)"
)
_CORRECTION = re.compile(
    rf"{_LEAD_IN}(?:actually|in\s+(?:actual\s+)?(?:fact|reality|truth)|really|"
    rf"(?:up)?on\s+{_SECOND_LOOK}|after\s+(?:a\s+)?{_SECOND_LOOK}|"
    r"(?:after\s+)?(?:re-?(?:watching|considering|thinking|checking|examining)|thinking\s+(?:about\s+it|again|it\s+over))|"
    r"looking\s+(?:closer|again|back|more\s+(?:closely|carefully))|scratch\s+that|correction|make\s+that|or\s+rather|"
    r"i\s+(?:have\s+|now\s+)?(?:mean|meant|reconsider(?:ed)?|changed?\s+my\s+mind|correct\s+myself)|"
    r"let\s+me\s+(?:correct|revise|change)|\u5176\u5b9e|\u5b9e\u9645\u4e0a|\u4e8b\u5b9e\u4e0a|\u4ed4\u7ec6)(?![a-z])",
    re.IGNORECASE,
)
_RECONSIDERATION = re.compile(
    rf"{_LEAD_IN}(?:wait(?!\s+(?:for|at|in|on|until|to|by)\b)|hold\s+on|hang\s+on|edit\s*:|update\s*:|correction|"
    r"scratch\s+that|on\s+second\s+thoughts?|let\s+me\s+(?:(?:look|think|check)\s+(?:again|more)|re-?(?:think|consider|check|watch|view|do|evaluate|examine|vise)|"
    r"correct|change)\b)",
    re.IGNORECASE,
)
_CONCESSION = re.compile(
    r"\s*(?:although|though|even\s+(?:though|if)|while|whereas|despite|in\s+spite)\b[^,]*,", re.IGNORECASE
)
_ASIDE = re.compile(r"\((?!\s*[A-Za-z]\s*\))")


@dataclass(frozen=True)
class Clause:
    """A clause of a reply. `sentence` is its sentence's index, `body` the offset after words that announce corrections.

    `corrects` is the offset before which the clause withdraws what it contradicts: its own start if it corrects
    ("actually, …"), the start of an earlier clause that announced a second thought ("Wait, …"), or None.
    """

    start: int
    end: int
    sentence: int
    asks: bool
    is_contrast: bool
    corrects: int | None
    body: int


class Clauses:
    """The clauses of a reply, found by offset."""

    def __init__(self, text: str) -> None:
        self._clauses = _split(text)
        self._starts = [clause.start for clause in self._clauses]

    def at(self, offset: int) -> Clause:
        """Return the clause that contains an offset."""
        return self._clauses[max(0, bisect_right(self._starts, offset) - 1)]

    def after(self, clause: Clause) -> Clause | None:
        """Return the next clause, if any."""
        index = bisect_right(self._starts, clause.start)
        return self._clauses[index] if index < len(self._clauses) else None


def segment(text: str, clause: Clause, start: int, end: int) -> tuple[int, int]:
    """Return the part of a clause, between commas or brackets, that contains a range."""
    bracket = text.rfind("(", clause.start, start)
    opened = bracket if text.find(")", bracket, start) < 0 else -1
    low = max(text.rfind(",", clause.start, start), opened) + 1
    comma, aside = text.find(",", end, clause.end), _ASIDE.search(text, end, clause.end)
    ends = [clause.end, *([comma] if comma >= 0 else []), *([aside.start()] if aside else [])]
    return max(low, clause.body if clause.body <= start else clause.start), min(ends)


def _split(text: str) -> Sequence[Clause]:
    """Split at the ends of sentences and lines, and before conjunctions."""
    pieces: list[tuple[int, int, str]] = []  # start, end, punctuation that ends the sentence
    start = 0
    for match in _BOUNDARY.finditer(text):
        if text[start : match.start()].strip():
            if concession := _CONCESSION.match(text, start, match.start()):
                pieces.append((start, concession.end(), ""))
                start = concession.end()
            pieces.append((start, match.start(), match["end"] or ""))
        elif pieces and match["end"]:
            pieces[-1] = (*pieces[-1][:2], pieces[-1][2] + match["end"])
        start = match.end()
    if concession := _CONCESSION.match(text, start):
        pieces.append((start, concession.end(), ""))
        start = concession.end()
    pieces.append((start, len(text), "."))
    clauses: list[Clause] = []
    sentence = first = 0
    announced: int | None = None
    for place, (_, _, mark) in enumerate(pieces):
        if not mark:
            continue
        for begin, finish, _ in pieces[first : place + 1]:
            contrast, correction = _CONTRAST.match(text, begin, finish), _CORRECTION.match(text, begin, finish)
            announced = begin if _RECONSIDERATION.match(text, begin, finish) else announced
            body, corrects = (correction.end(), begin) if correction else (begin, announced)
            clauses.append(Clause(begin, finish, sentence, "?" in mark, bool(contrast), corrects, body))
        sentence, first = sentence + 1, place + 1
    return clauses
