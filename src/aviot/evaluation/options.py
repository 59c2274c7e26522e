"""The options of an item, in every form that files hold them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.data.checks import check_keys, check_text
from aviot.evaluation.choices import MAX_OPTIONS
from aviot.evaluation.errors import ItemError
from aviot.evaluation.text import fold

_OPEN, _CLOSE = r"[(\[\uff08\u3010]", r"[.):\]\uff0e\uff09\uff1a\u3001\u3011]"  # with the full-width forms
_LETTER = r"([A-Za-z\uff21-\uff3a\uff41-\uff5a])"
_LABEL = re.compile(rf"\s*{_OPEN}?(?:{_LETTER}\s*{_CLOSE}|{_LETTER}\s+-)\s*(?=\S)")
_NUMBER = re.compile(rf"\s*(?:{_OPEN}(\d{{1,2}}){_CLOSE}\s*|(\d{{1,2}}){_CLOSE}\s+)(?=\S)")
_TEXTS, _LABELS = ("text", "texts"), ("label", "labels")


@dataclass(frozen=True)
class Options:
    """Options without their labels. `numbers` are numeric labels the file gave them; `is_keyed`: as keys of an object.

    Options that are keys' values have no order of their own, so that no index can mean one.
    """

    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    is_keyed: bool = False


def parse_options(value: Any) -> Options:
    """Read options from a list of texts, labelled texts or objects, or an object of labels and texts."""
    if value is None:
        return Options()
    numbers: tuple[int, ...] = ()
    is_keyed = False
    if isinstance(value, Mapping):
        value, numbers, is_keyed = _of_mapping(value)
    if not isinstance(value, list | tuple):
        raise ItemError(f"options must be a list of texts, or an object of letters and texts; got {value!r:.80}")
    if not value:
        return Options()
    if not 2 <= len(value) <= MAX_OPTIONS:
        raise ItemError(f"options must be 2 to {MAX_OPTIONS}, or left out for an open question; got {len(value)}")
    if all(isinstance(option, Mapping) for option in value):
        value = [_of_object(option, place) for place, option in enumerate(value)]
    texts = [_text(option, number) for number, option in enumerate(value, 1)]
    if numbers:
        return Options(tuple(texts), numbers, is_keyed)
    bare, numbers = _without_labels(texts)
    return Options(bare, numbers, is_keyed)


def as_text(value: Any) -> Any:
    """Return a number as text, and anything else as it is."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _text(option: Any, number: int) -> str:
    text = as_text(option)
    if not isinstance(text, str) or not text.strip():
        raise ItemError(f"option {number} must be text, got {option!r:.80}")
    return check_text(text.strip(), f"option {number}", ItemError)


def _of_mapping(value: Mapping[str, Any]) -> tuple[list[Any], tuple[int, ...], bool]:
    """Return options in the order of their keys, and the keys where they are numbers."""
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
        letters = [chr(ord(first) + place) for place in range(min(len(given), ord(last) - ord(first) + 1))]
        if sorted(given) == letters:
            return _without_missing([given[letter] for letter in letters]), (), True
    for start in (0, 1):
        numbers = range(start, start + len(given))
        if sorted(given) == sorted(map(str, numbers)):
            listed = _without_missing([given[str(number)] for number in numbers])
            return listed, tuple(numbers)[: len(listed)], True
    expected = [chr(ord("A") + place) for place in range(min(len(given), MAX_OPTIONS))]
    raise ItemError(f"options as an object must have the keys {expected}, got {sorted(given)}")


def _without_missing(values: list[Any]) -> list[Any]:
    """Drop trailing nulls: tables fill up options with them where other rows have more."""
    while values and values[-1] is None:
        values.pop()
    return values


def _of_object(option: Mapping[str, Any], place: int) -> Any:
    """Return the text of an option such as {"label": "A", "text": "x"}, with its label in front."""
    check_keys(option, f"option {place + 1}", ItemError)
    text = next((option[key] for key in ("text", "option", "choice", "value", "content") if key in option), None)
    if text is None:
        raise ItemError(f"option {place + 1} must be text, or an object with 'label' and 'text'; got {option!r:.80}")
    label = next((option[key] for key in ("label", "letter", "key") if key in option), None)
    return text if label is None else f"{label}. {text}"


def _without_labels(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Take off the labels that all options carry: letters from A, which also order them, or numbers from 0 or 1."""
    letters = [_LABEL.match(text) for text in texts]
    places = [ord(fold(label[1] or label[2]).lower()) - ord("a") for label in letters if label]
    if sorted(places) == list(range(len(texts))):
        bare = _cut(texts, letters)
        return tuple(bare[places.index(place)] for place in range(len(texts))), ()
    numbers = [_NUMBER.match(text) for text in texts]
    found = tuple(int(number[1] or number[2]) for number in numbers if number)
    if found in (tuple(range(len(texts))), tuple(range(1, len(texts) + 1))):
        return _cut(texts, numbers), found
    return tuple(texts), ()


def _cut(texts: Sequence[str], labels: Sequence[re.Match[str] | None]) -> tuple[str, ...]:
    return tuple(text[label.end() :] for text, label in zip(texts, labels, strict=True) if label)
