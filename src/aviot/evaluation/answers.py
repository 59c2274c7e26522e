"""The option that an item's answer means: by its letter, its index, its text, or several of these that agree."""

import re
from collections.abc import Sequence
from typing import Any

from aviot.evaluation.errors import ItemError
from aviot.evaluation.options import Options
from aviot.evaluation.text import fold, normal
from aviot.utils.values import as_whole

_NAMED = r"\s*(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)(?:\s+is)?[\s_:]*)?"
_LETTER = re.compile(rf"{_NAMED}[\s(\[]*([A-Za-z])[\s.):\]]*", re.IGNORECASE)
_LETTER_AND_TEXT = re.compile(
    rf"{_NAMED}(?:[(\[]\s*([A-Za-z])\s*[)\]][\s.:,-]*|([A-Za-z])(?:\s*[.):\],]\s*|\s+-+\s*|(\s+)))(?=\S)(.+)",
    re.IGNORECASE | re.DOTALL,
)
_NUMBER_AND_TEXT = re.compile(r"\s*[(\[]?(\d{1,2})[.):\]]\s*(\D.*)", re.DOTALL)


def right_option(value: Any, options: Options) -> int | str:
    """Return the option that an answer means, counted from 0, or what is wrong with the answer.

    Raise ItemError where an answer has two meanings that differ: these are a mistake of the file, not of one item.
    """
    texts = options.texts
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    number = _as_integer(value)
    if number is not None:
        return _of_number(number, options)
    if isinstance(value, bool | float):
        meant = {place for place, text in enumerate(texts) if _is_value(text, value)}
        return meant.pop() if len(meant) == 1 else _unusable(value)
    if not isinstance(value, str):
        return _unusable(value)
    meant = {place for place, text in enumerate(texts) if normal(text) == normal(value)}
    if letter := _LETTER.fullmatch(fold(value)):
        place = ord(letter[1].upper()) - ord("A")
        meant |= {place} if place < len(texts) else set()
    if value.strip().isdecimal() and (options.numbers or not (meant or _are_numbers(options))):
        return _of_number(int(value), options)
    if not meant and (labelled := _of_label_and_text(value, options)) is not None:
        meant = {labelled}
    if len(meant) > 1:
        return f"its answer {value!r:.80} means more than one option; give its number, from 0"
    if not meant:
        return f"its answer {value!r:.80} is none of the {len(texts)} options, by letter, number from 0 or text"
    return meant.pop()


def indexed_option(value: int | str, options: Options, known: int | None) -> int | None:
    """Return the option that a letter or an index means; None if there is no such option.

    An index counts from 0, but options that are numbered from 1 give it a second meaning: raise ItemError then, unless
    one of the two is the option that is known to be right.
    """
    text = str(value).strip()
    if not (text.isdecimal() or isinstance(value, int)):
        place = ord(text.upper()) - ord("A")
        return place if place < len(options.texts) else None
    meanings = _as_index(int(text), options)
    if known in meanings:
        return known
    _refuse_two_meanings(f"its index {text}", meanings, options.texts)
    return next(iter(meanings), None)


def _unusable(value: Any) -> str:
    return f"its answer must be an option's letter, number or text, got {value!r:.80}"


def _as_integer(value: Any) -> int | None:
    """Return a whole number; a float counts, because tables with missing values hold integers as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return as_whole(value)


def _is_value(text: str, value: float) -> bool:
    """Return whether an option's text is a value: the same number, also with a unit ("2 dogs"), or true or false."""
    if isinstance(value, bool):
        return normal(text) == str(value).lower()
    number = re.match(r"-?\d+(?:\.\d+)?(?![\w.])", normal(text))
    return number is not None and float(number[0]) == value


def _are_numbers(options: Options) -> bool:
    """Return whether every option is a number, so that a number as text is one of them and never an index."""
    return all(re.fullmatch(r"-?\d+(?:\.\d+)?", normal(text)) for text in options.texts)


def _of_number(number: int, options: Options) -> int | str:
    """Return the option that a number means as an index, as a numeric label and as a value; these have to agree."""
    texts, count = options.texts, len(options.texts)
    meanings = _as_index(number, options) if not options.is_keyed else _as_label(number, options)
    for place, text in enumerate(texts):
        if _is_value(text, number):
            meanings.setdefault(place, []).append("as its value")
    _refuse_two_meanings(f"its answer {number}", meanings, texts)
    if not meanings:
        return f"its answer {number} is no option's number, 0 to {count - 1}"
    return next(iter(meanings))


def _as_label(number: int, options: Options) -> dict[int, list[str]]:
    """Return the option that has a number as its label, with how it is meant."""
    return {options.numbers.index(number): ["as its label"]} if number in options.numbers else {}


def _as_index(number: int, options: Options) -> dict[int, list[str]]:
    """Return the options that a number means as an index from 0 and as a numeric label, with how each is meant."""
    meanings = {number: ["as an index from 0"]} if 0 <= number < len(options.texts) else {}
    for place, how in _as_label(number, options).items():
        meanings.setdefault(place, []).extend(how)
    return meanings


def _refuse_two_meanings(what: str, meanings: dict[int, list[str]], texts: Sequence[str]) -> None:
    if len(meanings) > 1:
        told = " or ".join(f"{texts[place]!r:.60} ({', '.join(how)})" for place, how in meanings.items())
        raise ItemError(
            f"{what} has two meanings: {told}; "
            f"give the option's letter, as in {chr(ord('A') + min(meanings))!r}, or its text as a string"
        )


def _of_label_and_text(value: str, options: Options) -> int | None:
    """Return the option of an answer such as "B. y"; raise ItemError where its label and its text contradict."""
    texts = options.texts
    if found := _LETTER_AND_TEXT.fullmatch(fold(value)):
        place, said, needs_text = ord((found[1] or found[2]).upper()) - ord("A"), found[4], found[3] is not None
    elif options.numbers and (found := _NUMBER_AND_TEXT.fullmatch(fold(value))):
        number = int(found[1])
        place, said, needs_text = options.numbers.index(number) if number in options.numbers else -1, found[2], False
    else:
        return None
    same = {i for i, text in enumerate(texts) if normal(text) == normal(said)}
    if place in same:
        return place
    if not 0 <= place < len(texts) or (needs_text and not same):
        return None
    other = f"the text of option {chr(ord('A') + min(same))}" if same else "no option's text"
    raise ItemError(
        f"its answer {value!r:.80} contradicts itself: option {chr(ord('A') + place)} is {texts[place]!r:.60}, and "
        f"{said.strip()!r:.60} is {other}; correct the label or the text"
    )
