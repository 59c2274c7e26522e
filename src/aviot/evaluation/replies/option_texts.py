"""Options that a reply mentions by their texts."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from aviot.evaluation.replies.clauses import Clauses
from aviot.evaluation.replies.mention import MASK, REACH, Mention
from aviot.evaluation.replies.numbers import Bound, bound_at, starts_with_number
from aviot.evaluation.replies.small_words import are_relations, counts, is_small
from aviot.evaluation.text import ARTICLES, LETTER, NO_ARTICLE, UNSPACED, fold, normal, spellings, words

_CACHED = 1024
"""Options whose patterns are kept; every setting of a run reads replies to the same ones."""

_AND = r"\s*(?:,|/|\b(?:and|or|then|but)\b)(?:\s*(?:and|or|then|also|to|the|an?)\b)*\s*"
_TIMES = re.compile(r"(?:(\d+)(?: times?)?|(once|twice|thrice))")
_ADVERBS = {"1": "once", "2": "twice", "3": "thrice"}
_SIGNS = re.compile(r"[\s<>=\u2264\u2265\u2a7d\u2a7e~]*")
_WAYS = frozenset({"up", "down", "left", "right"})


def mask_texts(text: str, options: Sequence[str]) -> tuple[str, list[Mention]]:
    """Return the reply with every option's text masked, longest first, and where each was; equal options share a place.

    An option that is a common word is masked only where it means the option. A number that is a bound ("more than 3")
    is no mention of that number.
    """
    alike: dict[str, list[int]] = {}
    for index, option in enumerate(options):
        alike.setdefault(as_count(option), []).append(index)
    groups = sorted(alike.values(), key=lambda indices: -len(options[indices[0]]))
    found: list[Mention] = []
    for same in (group for group in groups if not _is_common(options[group[0]])):
        if (pattern := _option_pattern(options[same[0]])) is not None:
            bounds = _bounds(options, same[0])
            matches = [match for match in pattern.finditer(text) if bound_at(text, *match.span()) in bounds]
            is_number = starts_with_number(options[same[0]])
            found += [Mention(i, *match.span(), "text", is_number=is_number) for match in matches for i in same]
            found += [each for match in matches for each in _elided(text, match, options[same[0]], options)]
            text = pattern.sub(lambda match: MASK * len(match[0]), text)
    clauses, masked, relations = Clauses(text), text, are_relations(options)
    for same in (group for group in groups if _is_common(options[group[0]])):
        bounds, is_number = _bounds(options, same[0]), starts_with_number(options[same[0]])
        for start, end in _common_word(text, options[same[0]], clauses, relations=relations):
            if MASK not in masked[start:end] and bound_at(text, start, end) in bounds:
                found += [Mention(i, start, end, "text", is_small=True, is_number=is_number) for i in same]
                masked = masked[:start] + MASK * (end - start) + masked[end:]
    return masked, sorted(found, key=lambda each: each.start)


@lru_cache(_CACHED)
def as_count(text: str) -> str:
    """Return what comparison of whole texts uses: the number of a count ("twice", "two times"), or the normal form.

    Signs that make a number a bound ("3+", "<3") are part of it.
    """
    number, bound = _number(text), _own_bound(text)
    return normal(text) if number is None else number if bound == "none" else f"{number} {bound}"


def _number(text: str) -> str | None:
    """Return the digits of a text that is nothing but a count; None for another text."""
    found = _TIMES.fullmatch(normal(text))
    if found is None:
        return None
    return found[1] or next(digits for digits, adverb in _ADVERBS.items() if adverb == found[2])


@lru_cache(_CACHED)
def _own_bound(option: str) -> Bound:
    """Return which kind of bound an option gives, if it opens with a number or a sign before one."""
    folded = fold(option)
    opening = _SIGNS.match(folded)
    return bound_at(folded, opening.end() if opening else 0, len(folded))


def _bounds(options: Sequence[str], index: int) -> tuple[Bound, ...]:
    """Return the kinds of bounds that mean an option; a plain number means "3+" too where no option is a plain "3"."""
    own = _own_bound(options[index])
    alike = [option for option in options if normal(option) == normal(options[index])]
    return (own,) if own == "none" or any(_own_bound(each) == "none" for each in alike) else (own, "none")


@lru_cache(_CACHED)
def _is_common(option: str) -> bool:
    return is_small(fold(option)) or _number(option) is not None


def _common_word(text: str, option: str, clauses: Clauses, *, relations: bool) -> Iterator[tuple[int, int]]:
    """Yield the places where a common word, or a count in any of its spellings, means the option."""
    word = fold(option).casefold().strip(" .!")
    pattern = re.escape(word) + (r"(?:wards?)?" if word in _WAYS else "")
    if (number := _number(option)) is not None:
        numerals = "|".join(map(re.escape, spellings(number)))
        times = r"(?:\s+times?)?" if normal(option) == number else r"\s+times?"
        adverb = f"|{_ADVERBS[number]}" if number in _ADVERBS else ""
        pattern = rf"(?<![\d.,-])(?:{numerals}){times}(?![.,]?\d){adverb}"
    for match in re.finditer(rf"(?<!{LETTER})(?:{pattern})(?!{LETTER})", text, re.IGNORECASE):
        if re.match(r"\d|\w+\s+times?$", match[0]) or counts(text, *match.span(), clauses, relations=relations):
            yield match.span()


def _elided(text: str, match: re.Match[str], option: str, options: Sequence[str]) -> Iterator[Mention]:
    """Yield other options whose shared words are not said again.

    They share all words but one ("moves up and then down", "a red and a blue car"), or the first ones ("He closes the
    window and then leaves the room").
    """
    said = words(option)
    for index, other in enumerate(options):
        if (place := _after_shared_words(text, match.end(), option, other)) is not None:
            yield Mention(index, *place, "text")
            continue
        differing = [(mine, theirs) for mine, theirs in zip(said, words(other), strict=False) if mine != theirs]
        if len(words(other)) != len(said) or len(said) < 2 or len(differing) != 1:
            continue
        word = re.escape(differing[0][1])
        after = re.compile(rf"{_AND}{word}(?!{LETTER})", re.IGNORECASE).match(text, match.end())
        before = re.compile(rf"(?<!{LETTER}){word}{_AND}$", re.IGNORECASE)
        if after and said[-1] == differing[0][0]:
            yield Mention(index, match.end(), after.end(), "text")
        elif said[0] == differing[0][0] and (
            found := before.search(text, max(0, match.start() - REACH), match.start())
        ):
            yield Mention(index, found.start(), match.start(), "text")


def _after_shared_words(text: str, end: int, option: str, other: str) -> tuple[int, int] | None:
    """Return where an option stands after another one in a sentence without the first words that both share."""
    said, further = words(option), words(other)
    shared = next((i for i, pair in enumerate(zip(said, further, strict=False)) if pair[0] != pair[1]), 0)
    rest = _option_pattern(" ".join(further[shared:])) if shared and len(further) - shared > 1 else None
    if rest is None:
        return None
    found = re.compile(rf"(?<=[\s,]){rest.pattern}", re.IGNORECASE).search(text, end, min(len(text), end + REACH))
    between = text[end : found.start()] if found else ""
    if found is None or re.search(r"[.!?;\n]", between) or not re.search(r"\b(?:and|then|or)\b|,", between):
        return None
    return found.span()


@lru_cache(_CACHED)
def _option_pattern(option: str) -> re.Pattern[str] | None:
    """Return an option's words with anything but letters between them; None for a letter, which is read as one."""
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
