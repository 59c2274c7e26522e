"""Options that a reply mentions by their texts; numbers with bounds ("more than 3") and ranges ("3 to 5")."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

from aviot.evaluation.replies.clauses import MASK, REACH, Clauses
from aviot.evaluation.replies.common_words import are_relations, is_common_word, means_option
from aviot.evaluation.replies.references import Mention
from aviot.evaluation.text import ARTICLES, LETTER, NO_ARTICLE, NUMBERS, UNSPACED, fold, normal, spellings, words

Bound = Literal["none", "lower", "upper", "range", "part"]

# Words around a number that say how it is meant. Names that end in BEFORE are searched for up to the number's start,
# those that end in AFTER are matched at its end.
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


_CACHED = 1024
"""Options whose patterns are cached; every setting of a run has the same ones."""

# Options that are named together with another ("up, then down"), and counts in other spellings ("two times", "twice").
_AND = r"\s*(?:,|/|\b(?:and|or|then|but)\b)(?:\s*(?:and|or|then|also|to|the|an?)\b)*\s*"
_TIMES = re.compile(r"(?:(\d+)(?: times?)?|(once|twice|thrice))")
_ADVERBS = {"1": "once", "2": "twice", "3": "thrice"}
_SIGNS = re.compile(r"[\s<>=\u2264\u2265\u2a7d\u2a7e~]*")
_WAYS = frozenset({"up", "down", "left", "right"})


def starts_with_number(option: str) -> bool:
    """Return whether an option starts with a number, in digits or letters."""
    return _STARTS.match(option.strip()) is not None


def bound_at(text: str, start: int, end: int) -> Bound:
    """Return the kind of bound of the number at the start of a range; "none" for a plain count.

    "part": the number belongs to a longer one ("two hundred", "twenty-two", "one half").
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
    if any(_RANGE_AFTER.match(text, offset) for offset in ends) or _RANGE_BEFORE.search(text, first, start):
        return "range"
    if before := _BEFORE.search(text, first, start):
        return "lower" if bool(before["lower"]) != bool(before["not"]) else "upper"
    after = next((found for offset in ends if (found := _AFTER.match(text, offset))), None)
    if after is None:
        return "none"
    return "lower" if after["lower"] else "upper"


def _between(text: str, first: int, start: int, end: int) -> bool:
    """Return whether a number is one of the two in "between 3 and 5"; `first` is where its context begins."""
    low = _BETWEEN.search(text, first, start) and _AND_NUMBER.match(text, end)
    return bool(low or _BETWEEN_AND.search(text, first, start))


def is_total(text: str, start: int, end: int) -> bool:
    """Return whether a number is the total of others: "2 + 1 = 3", "so 3 in total"."""
    return bool(_TOTAL_BEFORE.search(text, max(0, start - REACH), start) or _TOTAL_AFTER.match(text, end))


def mask_texts(text: str, options: Sequence[str]) -> tuple[str, list[Mention]]:
    """Return the reply with every option's text masked, longest first, and their mentions.

    Equal options share a range. A common word is masked only where it means the option. A bound ("more than 3") is not
    a mention of its number.
    """
    alike: dict[str, list[int]] = {}
    for index, option in enumerate(options):
        alike.setdefault(as_count(option), []).append(index)
    groups = sorted(alike.values(), key=lambda indices: -len(options[indices[0]]))
    found: list[Mention] = []
    for same in (group for group in groups if not _is_common_or_count(options[group[0]])):
        if (pattern := _option_pattern(options[same[0]])) is not None:
            bounds = _bounds(options, same[0])
            matches = [match for match in pattern.finditer(text) if bound_at(text, *match.span()) in bounds]
            is_number = starts_with_number(options[same[0]])
            found += [Mention(i, *match.span(), "text", is_number=is_number) for match in matches for i in same]
            found += [each for match in matches for each in _elided(text, match, options[same[0]], options)]
            text = pattern.sub(lambda match: MASK * len(match[0]), text)
    clauses, masked, relations = Clauses(text), text, are_relations(options)
    for same in (group for group in groups if _is_common_or_count(options[group[0]])):
        bounds, is_number = _bounds(options, same[0]), starts_with_number(options[same[0]])
        for start, end in _ranges_of_common_word(text, options[same[0]], clauses, relations=relations):
            if MASK not in masked[start:end] and bound_at(text, start, end) in bounds:
                found += [Mention(i, start, end, "text", is_common_word=True, is_number=is_number) for i in same]
                masked = masked[:start] + MASK * (end - start) + masked[end:]
    return masked, sorted(found, key=lambda each: each.start)


@lru_cache(_CACHED)
def as_count(text: str) -> str:
    """Return the form in which whole texts are compared: a count's number ("twice", "two times"), or the normal form.

    Signs that make a number a bound ("3+", "<3") are kept.
    """
    number, bound = _number(text), _own_bound(text)
    return normal(text) if number is None else number if bound == "none" else f"{number} {bound}"


def _number(text: str) -> str | None:
    """Return the digits of a text that is only a count; None for any other text."""
    found = _TIMES.fullmatch(normal(text))
    if found is None:
        return None
    return found[1] or next(digits for digits, adverb in _ADVERBS.items() if adverb == found[2])


@lru_cache(_CACHED)
def _own_bound(option: str) -> Bound:
    """Return the kind of bound that an option states, if it starts with a number or a comparison sign."""
    folded = fold(option)
    opening = _SIGNS.match(folded)
    return bound_at(folded, opening.end() if opening else 0, len(folded))


def _bounds(options: Sequence[str], index: int) -> tuple[Bound, ...]:
    """Return the bounds that match an option; a plain number also matches "3+" if no option is a plain "3"."""
    own = _own_bound(options[index])
    alike = [option for option in options if normal(option) == normal(options[index])]
    return (own,) if own == "none" or any(_own_bound(each) == "none" for each in alike) else (own, "none")


@lru_cache(_CACHED)
def _is_common_or_count(option: str) -> bool:
    return is_common_word(fold(option)) or _number(option) is not None


def _ranges_of_common_word(text: str, option: str, clauses: Clauses, *, relations: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges in which a common word, or a count in any spelling, means the option."""
    word = fold(option).casefold().strip(" .!")
    pattern = re.escape(word) + (r"(?:wards?)?" if word in _WAYS else "")
    if (number := _number(option)) is not None:
        numerals = "|".join(map(re.escape, spellings(number)))
        times = r"(?:\s+times?)?" if normal(option) == number else r"\s+times?"
        adverb = f"|{_ADVERBS[number]}" if number in _ADVERBS else ""
        pattern = rf"(?<![\d.,-])(?:{numerals}){times}(?![.,]?\d){adverb}"
    for match in re.finditer(rf"(?<!{LETTER})(?:{pattern})(?!{LETTER})", text, re.IGNORECASE):
        if re.match(r"\d|\w+\s+times?$", match[0]) or means_option(text, *match.span(), clauses, relations=relations):
            yield match.span()


def _elided(text: str, match: re.Match[str], option: str, options: Sequence[str]) -> Iterator[Mention]:
    """Yield mentions of other options that omit the words they share with the matched one.

    They share all words but one ("moves up and then down", "a red and a blue car"), or the first ones ("He closes the
    window and then leaves the room").
    """
    own = words(option)
    for index, other in enumerate(options):
        if (span := _after_shared_words(text, match.end(), option, other)) is not None:
            yield Mention(index, *span, "text")
            continue
        differing = [pair for pair in zip(own, words(other), strict=False) if pair[0] != pair[1]]
        if len(words(other)) != len(own) or len(own) < 2 or len(differing) != 1:
            continue
        word = re.escape(differing[0][1])
        after = re.compile(rf"{_AND}{word}(?!{LETTER})", re.IGNORECASE).match(text, match.end())
        before = re.compile(rf"(?<!{LETTER}){word}{_AND}$", re.IGNORECASE)
        if after and own[-1] == differing[0][0]:
            yield Mention(index, match.end(), after.end(), "text")
        elif own[0] == differing[0][0] and (found := before.search(text, max(0, match.start() - REACH), match.start())):
            yield Mention(index, found.start(), match.start(), "text")


def _after_shared_words(text: str, end: int, option: str, other: str) -> tuple[int, int] | None:
    """Return the range of an option that follows another in a sentence without the first words that both share."""
    own, others = words(option), words(other)
    shared = next((i for i, pair in enumerate(zip(own, others, strict=False)) if pair[0] != pair[1]), 0)
    rest = _option_pattern(" ".join(others[shared:])) if shared and len(others) - shared > 1 else None
    if rest is None:
        return None
    found = re.compile(rf"(?<=[\s,]){rest.pattern}", re.IGNORECASE).search(text, end, min(len(text), end + REACH))
    between = text[end : found.start()] if found else ""
    if found is None or re.search(r"[.!?;\n]", between) or not re.search(r"\b(?:and|then|or)\b|,", between):
        return None
    return found.span()


@lru_cache(_CACHED)
def _option_pattern(option: str) -> re.Pattern[str] | None:
    """Return a pattern of an option's words, separated by non-letters; None for a single letter, which is a label."""
    found = words(option)
    if not found or re.fullmatch("[a-z]", "".join(found)):
        return None
    parts = ["|".join(map(re.escape, spellings(word))) for word in found]
    articles, gap = f"(?:{'|'.join(ARTICLES)})", rf"[^\w{MASK}]"
    article = rf"(?:(?<!{LETTER}){articles}\s+(?!{NO_ARTICLE}))?"
    between = rf"(?:{gap}+{articles}(?!{LETTER}))*{gap}*"
    edge = rf"(?<!{LETTER})(?<!non-)(?<!anti-)(?<!counter-)", rf"(?!{LETTER})"
    first = "" if re.match(f"[{UNSPACED}]", found[0]) else edge[0]
    last = "" if re.search(f"[{UNSPACED}]$", found[-1]) else edge[1]
    joined = rf"(?:{between}|\s+to\s+)" if _own_bound(option) == "range" else between  # "3-4" is "3 to 4"
    return re.compile(article + first + joined.join(f"(?:{part})" for part in parts) + last, re.IGNORECASE)
