"""The options of an item in every form that files use, and the option that an item's answer names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.data.checks import check_keys, check_text
from aviot.evaluation.choices import MAX_OPTIONS
from aviot.evaluation.fields import ItemError
from aviot.evaluation.text import fold, normal
from aviot.utils.values import as_whole

_OPEN, _CLOSE = r"[(\[\uff08\u3010]", r"[.):\]\uff0e\uff09\uff1a\u3001\u3011]"  # including full-width forms
_LETTER = r"([A-Za-z\uff21-\uff3a\uff41-\uff5a])"
_LABEL = re.compile(rf"\s*{_OPEN}?(?:{_LETTER}\s*{_CLOSE}|{_LETTER}\s+-)\s*(?=\S)")
_NUMBER = re.compile(rf"\s*(?:{_OPEN}(\d{{1,2}}){_CLOSE}\s*|(\d{{1,2}}){_CLOSE}\s+)(?=\S)")
_TEXTS, _LABELS = ("text", "texts"), ("label", "labels")


_NAMED = r"\s*(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)(?:\s+is)?[\s_:]*)?"
_LETTER_ALONE = re.compile(rf"{_NAMED}[\s(\[]*([A-Za-z])[\s.):\]]*", re.IGNORECASE)
_LETTER_AND_TEXT = re.compile(
    rf"{_NAMED}(?:[(\[]\s*([A-Za-z])\s*[)\]][\s.:,-]*|([A-Za-z])(?:\s*[.):\],]\s*|\s+-+\s*|(\s+)))(?=\S)(.+)",
    re.IGNORECASE | re.DOTALL,
)
_NUMBER_AND_TEXT = re.compile(r"\s*[(\[]?(\d{1,2})[.):\]]\s*(\D.*)", re.DOTALL)


@dataclass(frozen=True)
class Options:
    """Options without their labels. `numbers` are numeric labels in the file; `is_keyed` if they were an object's keys.

    Options under the keys of an object have no order, so an index cannot refer to one.
    """

    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    is_keyed: bool = False


def parse_options(value: Any) -> Options:
    """Parse options from a list of texts, labelled texts or objects, or from an object of labels and texts."""
    if value is None:
        return Options()
    numbers: tuple[int, ...] = ()
    is_keyed = False
    if isinstance(value, Mapping):
        value, numbers, is_keyed = _from_mapping(value)
    if not isinstance(value, list | tuple):
        raise ItemError(f"options must be a list of texts, or an object of letters and texts; got {value!r:.80}")
    if not value:
        return Options()
    if not 2 <= len(value) <= MAX_OPTIONS:
        raise ItemError(f"options must be 2 to {MAX_OPTIONS}, or left out for an open question; got {len(value)}")
    if all(isinstance(option, Mapping) for option in value):
        value = [_from_object(option, index) for index, option in enumerate(value)]
    texts = [_text(option, number) for number, option in enumerate(value, 1)]
    if numbers:
        return Options(tuple(texts), numbers, is_keyed)
    bare, numbers = _without_labels(texts)
    return Options(bare, numbers, is_keyed)


def as_text(value: Any) -> Any:
    """Return numbers as text and anything else unchanged."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _text(option: Any, number: int) -> str:
    text = as_text(option)
    if not isinstance(text, str) or not text.strip():
        raise ItemError(f"option {number} must be text, got {option!r:.80}")
    return check_text(text.strip(), f"option {number}", ItemError)


def _from_mapping(value: Mapping[str, Any]) -> tuple[list[Any], tuple[int, ...], bool]:
    """Return options in the order of their keys, the keys if they are numbers, and True: they are keyed."""
    check_keys(value, "the object of options", ItemError)
    for texts, labels in ((t, k) for t in _TEXTS for k in _LABELS):
        if set(value) == {texts, labels}:  # {"text": [...], "label": ["A", ...]}
            if len(value[texts]) != len(value[labels]):
                raise ItemError(f"options have {len(value[texts])} texts and {len(value[labels])} labels")
            if len(set(map(str, value[labels]))) < len(value[labels]):
                raise ItemError(f"options have the same label twice: {value[labels]}; give each its own")
            value = dict(zip(map(str, value[labels]), value[texts], strict=True))
            break
    given = {str(key).strip(): option for key, option in value.items()}
    if len(given) < len(value):
        raise ItemError(f"options have the same label twice: {list(value)}; give each its own")
    for first, last in (("A", "Z"), ("a", "z")):
        letters = [chr(ord(first) + index) for index in range(min(len(given), ord(last) - ord(first) + 1))]
        if sorted(given) == letters:
            return _without_missing([given[letter] for letter in letters]), (), True
    for start in (0, 1):
        numbers = range(start, start + len(given))
        if sorted(given) == sorted(map(str, numbers)):
            listed = _without_missing([given[str(number)] for number in numbers])
            return listed, tuple(numbers)[: len(listed)], True
    expected = [chr(ord("A") + index) for index in range(min(len(given), MAX_OPTIONS))]
    raise ItemError(f"options as an object must have the keys {expected}, got {sorted(given)}")


def _without_missing(values: list[Any]) -> list[Any]:
    """Drop trailing nulls, with which tables pad records that have fewer options than others."""
    while values and values[-1] is None:
        values.pop()
    return values


def _from_object(option: Mapping[str, Any], index: int) -> Any:
    """Return the text of an option such as {"label": "A", "text": "x"}, preceded by its label."""
    check_keys(option, f"option {index + 1}", ItemError)
    text = next((option[key] for key in ("text", "option", "choice", "value", "content") if key in option), None)
    if text is None:
        raise ItemError(f"option {index + 1} must be text, or an object with 'label' and 'text'; got {option!r:.80}")
    label = next((option[key] for key in ("label", "letter", "key") if key in option), None)
    return text if label is None else f"{label}. {text}"


def _without_labels(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Remove labels that all options have: letters from A, which also order them, or numbers from 0 or 1."""
    letters = [_LABEL.match(text) for text in texts]
    places = [ord(fold(label[1] or label[2]).lower()) - ord("a") for label in letters if label]
    if sorted(places) == list(range(len(texts))):
        bare = _cut(texts, letters)
        return tuple(bare[places.index(index)] for index in range(len(texts))), ()
    numbers = [_NUMBER.match(text) for text in texts]
    found = tuple(int(number[1] or number[2]) for number in numbers if number)
    if found in (tuple(range(len(texts))), tuple(range(1, len(texts) + 1))):
        return _cut(texts, numbers), found
    return tuple(texts), ()


def _cut(texts: Sequence[str], labels: Sequence[re.Match[str] | None]) -> tuple[str, ...]:
    return tuple(text[label.end() :] for text, label in zip(texts, labels, strict=True) if label)


def named_option(value: Any, options: Options) -> int | str:
    """Return the index of the option that an answer names, or a sentence on why it names none.

    Raise ItemError if the answer can be read in two ways that name different options.
    """
    texts = options.texts
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    number = _as_integer(value)
    if number is not None:
        return _option_of_number(number, options)
    if isinstance(value, bool | float):
        named = {index for index, text in enumerate(texts) if _is_value(text, value)}
        return named.pop() if len(named) == 1 else _unusable(value)
    if not isinstance(value, str):
        return _unusable(value)
    named = {index for index, text in enumerate(texts) if normal(text) == normal(value)}
    if letter := _LETTER_ALONE.fullmatch(fold(value)):
        index = ord(letter[1].upper()) - ord("A")
        named |= {index} if index < len(texts) else set()
    if value.strip().isdecimal() and (options.numbers or not (named or _are_numbers(options))):
        return _option_of_number(int(value), options)
    if not named and (labelled := _option_of_label_and_text(value, options)) is not None:
        named = {labelled}
    if len(named) > 1:
        return f"its answer {value!r:.80} means more than one option; give its number, from 0"
    if not named:
        return f"its answer {value!r:.80} is none of the {len(texts)} options, by letter, number from 0 or text"
    return named.pop()


def option_at(value: int | str, options: Options, known: int | None) -> int | None:
    """Return the option that a letter or an index names; None if there is no such option.

    An index is 0-based, but options numbered from 1 give it a second meaning: raise ItemError then, unless one of the
    two is `known`, the option that another key names.
    """
    text = str(value).strip()
    if not (text.isdecimal() or isinstance(value, int)):
        index = ord(text.upper()) - ord("A")
        return index if index < len(options.texts) else None
    meanings = _as_index(int(text), options)
    if known in meanings:
        return known
    _refuse_two_meanings(f"its index {text}", meanings, options.texts)
    return next(iter(meanings), None)


def _unusable(value: Any) -> str:
    return f"its answer must be an option's letter, number or text, got {value!r:.80}"


def _as_integer(value: Any) -> int | None:
    """Return an integer or None; whole floats count, because tables with missing values hold integers as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return as_whole(value)


def _is_value(text: str, value: float) -> bool:
    """Return whether an option's text is a value: the same number, also with a unit ("2 dogs"), or the same boolean."""
    if isinstance(value, bool):
        return normal(text) == str(value).lower()
    number = re.match(r"-?\d+(?:\.\d+)?(?![\w.])", normal(text))
    return number is not None and float(number[0]) == value


def _are_numbers(options: Options) -> bool:
    """Return whether every option is a number: a numeric text is then an option's text and never an index."""
    return all(re.fullmatch(r"-?\d+(?:\.\d+)?", normal(text)) for text in options.texts)


def _option_of_number(number: int, options: Options) -> int | str:
    """Return the option that a number names as an index, a numeric label and a value, which must agree."""
    texts, count = options.texts, len(options.texts)
    meanings = _as_index(number, options) if not options.is_keyed else _as_label(number, options)
    for index, text in enumerate(texts):
        if _is_value(text, number):
            meanings.setdefault(index, []).append("as its value")
    _refuse_two_meanings(f"its answer {number}", meanings, texts)
    if not meanings:
        return f"its answer {number} is no option's number, 0 to {count - 1}"
    return next(iter(meanings))


def _as_label(number: int, options: Options) -> dict[int, list[str]]:
    """Return the option with this numeric label, and how the number was read."""
    return {options.numbers.index(number): ["as its label"]} if number in options.numbers else {}


def _as_index(number: int, options: Options) -> dict[int, list[str]]:
    """Return the options with this 0-based index or numeric label, and how the number was read for each."""
    meanings = {number: ["as an index from 0"]} if 0 <= number < len(options.texts) else {}
    for index, how in _as_label(number, options).items():
        meanings.setdefault(index, []).extend(how)
    return meanings


def _refuse_two_meanings(what: str, meanings: dict[int, list[str]], texts: Sequence[str]) -> None:
    if len(meanings) > 1:
        readings = " or ".join(f"{texts[index]!r:.60} ({', '.join(how)})" for index, how in meanings.items())
        raise ItemError(
            f"{what} has two meanings: {readings}; "
            f"give the option's letter, as in {chr(ord('A') + min(meanings))!r}, or its text as a string"
        )


def _option_of_label_and_text(value: str, options: Options) -> int | None:
    """Return the option of an answer such as "B. y"; raise ItemError if label and text contradict each other."""
    texts = options.texts
    if found := _LETTER_AND_TEXT.fullmatch(fold(value)):
        index, text, needs_text = ord((found[1] or found[2]).upper()) - ord("A"), found[4], found[3] is not None
    elif options.numbers and (found := _NUMBER_AND_TEXT.fullmatch(fold(value))):
        number = int(found[1])
        index, text, needs_text = options.numbers.index(number) if number in options.numbers else -1, found[2], False
    else:
        return None
    same = {i for i, option in enumerate(texts) if normal(option) == normal(text)}
    if index in same:
        return index
    if not 0 <= index < len(texts) or (needs_text and not same):
        return None
    other = f"the text of option {chr(ord('A') + min(same))}" if same else "no option's text"
    raise ItemError(
        f"its answer {value!r:.80} contradicts itself: option {chr(ord('A') + index)} is {texts[index]!r:.60}, and "
        f"{text.strip()!r:.60} is {other}; correct the label or the text"
    )
