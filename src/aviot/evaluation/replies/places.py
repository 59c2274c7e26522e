"""Options that a reply mentions by their place: "the first option", "option 3", "the last one"."""

import re
from collections.abc import Iterator, Sequence

from aviot.evaluation.replies.mention import Mention

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_BEFORE_LAST = r"(?:(?:second|next)[\s-]+(?:to|from)[\s-]+(?:the\s+)?last|last\s+but\s+one|penultimate)"
_ORDINAL = rf"(?:{_BEFORE_LAST}|{'|'.join(_ORDINALS)}|\d{{1,2}}(?:st|nd|rd|th)|last)"
_NUMBER = rf"(?:{'|'.join(_NUMBERS)}|\d{{1,2}})"
_AND = r"\s*(?:,\s*(?:and|or)?|and|or|&|/)\s*(?:the\s+)?"
_NOUN = r"(?:options?|choices?|alternatives?|candidates?)"
_BY_ORDINAL = re.compile(
    rf"(?<!\bmy )(?<!\byour )(?<!\bour )\b({_ORDINAL}(?:{_AND}{_ORDINAL})*)\s+(?:listed\s+|given\s+)?({_NOUN}|ones?)\b"
    r"(?!\s*[:=]\s*[(\[]?[A-Za-z][)\].]?(?![A-Za-z]))",
    re.IGNORECASE,
)
_BY_NUMBER = re.compile(
    rf"\b{_NOUN}\s*(?:number|no\.?|#)?\s*[(\[]?({_NUMBER}(?:{_AND}{_NUMBER})*)\b(?!\s*(?:%|percent|of\b)|[.:,]\d)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    rf"(?<!\w)(?:(?:answer\s+)?(?:number|(?P<short>no\.))\s*|#\s?)(?P<number>{_NUMBER})\b"
    rf"(?!\s*(?:%|percent)|[.:,]\d)(?(short)(?=\s*(?:[.,;:!?)\n]|$|is\b|was\b)))",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"第([一二三四五六七八九十]|\d{1,2})(?:个)?选项")
_CHINESE_NUMBERS = "一二三四五六七八九十"


def find_places(text: str, count: int) -> list[Mention]:
    """Return every option that a reply mentions by its place among `count` options."""
    return sorted(_find(text, count), key=lambda mention: mention.start)


def find_numbers(masked: str, count: int, places: Sequence[Mention]) -> list[Mention]:
    """Return the options that a reply mentions by a number alone ("number 3", "#3"), apart from those found already.

    Option texts have to be masked: where an option is "3", "number 3" is that one.
    """
    return [
        Mention(_place(match["number"].lower(), count), match.start(), match.end(), "place")
        for match in _ALONE.finditer(masked)
        if not any(place.start <= match.start("number") < place.end for place in places)
    ]


def _find(text: str, count: int) -> Iterator[Mention]:
    for pattern, unit in ((_BY_ORDINAL, _ORDINAL), (_BY_NUMBER, _NUMBER)):
        for match in pattern.finditer(text):
            noun = pattern is _BY_ORDINAL and match[2].lower()
            for part in re.finditer(unit, match[1], re.IGNORECASE):
                start, end = match.start(1) + part.start(), match.start(1) + part.end()
                last = match.end(1) == end
                yield Mention(
                    _place(part[0].lower(), count),
                    start,
                    match.end() if last else end,
                    "place",
                    is_explicit=noun not in ("one", "ones"),
                )
    for match in _CHINESE.finditer(text):
        place = _CHINESE_NUMBERS.index(match[1]) if match[1] in _CHINESE_NUMBERS else int(match[1]) - 1
        yield Mention(place, match.start(), match.end(), "place", is_explicit=True)


def _place(word: str, count: int) -> int:
    """Return the place that a word means, counted from 0; -1 for an option 0, which is none."""
    if word == "last":
        return count - 1
    if re.fullmatch(_BEFORE_LAST, word):
        return count - 2
    for words in (_ORDINALS, _NUMBERS):
        if word in words:
            return words.index(word)
    return int(re.sub(r"\D", "", word)) - 1
