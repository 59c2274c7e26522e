"""Fields of an item's record: the key names accepted for each, misspelt keys, and extra columns."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class ItemError(ValueError):
    """A record that cannot be used as an item; the message says what to change."""


Scalar = str | int | float | bool

FIELDS = ("id", "video", "question", "options", "answer")
OPTION_KEYS = (
    "options", "choices", "candidates", "option", "choice", "candidate", "answer_choices", "answer_options",
    "answer_candidates", "possible_answers", "multiple_choice_options", "mc_options", "alternatives",
)  # fmt: skip
ANSWER_KEYS = (
    "answer", "correct_answer", "right_answer", "correct_option", "correct_choice", "answer_key", "answerKey",
    "answer_letter", "correct_letter", "ground_truth", "groundtruth",
)  # fmt: skip
INDEX_KEYS = (
    "answer_idx", "answer_index", "answer_id", "correct_idx", "correct_index", "correct_answer_idx",
    "correct_answer_index", "correct_option_idx", "correct_option_index", "correct_choice_idx", "correct_choice_index",
)  # fmt: skip
"""Keys whose value is an option's letter or 0-based index."""

NAMES = {
    "video": ("video",),
    "question": ("question",),
    "options": OPTION_KEYS,
    "answer": ANSWER_KEYS + INDEX_KEYS,
    "id": ("id",),
}
"""Accepted key names of each field."""

_COLUMN = re.compile(r"(option|choice|candidate|opt|op|a|)_?([0-9]{1,2}|[A-Za-z])")
_SINGULAR = ("option", "choice", "candidate")  # keys of options only if the value is a list or an object
_LONG_NAME = 6
"""A key counts as misspelt with two wrong letters if the name has at least this length, else with one."""


@dataclass(frozen=True)
class Keys:
    """A record's values by field. `answers` and `indices` map the keys found to their values, `extra` has the rest."""

    options: Any
    answers: Mapping[str, Any]
    indices: Mapping[str, Any]
    extra: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, Scalar]:
        """Return the extra columns with scalar values."""
        return scalars(self.extra)


def scalars(record: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the entries whose values are text, numbers or booleans; missing values are left out."""
    simple = {key: value for key, value in record.items() if isinstance(value, str | int | float | bool)}
    return {key: value for key, value in simple.items() if not _is_missing(value)}


def sort_keys(record: Mapping[str, Any]) -> Keys:
    """Return a record's values by field; raise ItemError for a misspelt field name."""
    given = {key: value for key, value in record.items() if value is not None}
    option_keys = [key for key in OPTION_KEYS if key in given and _can_be_options(key, given[key])]
    options = _single_options(option_keys, given)
    columns = [] if option_keys else _option_columns(record)
    options = _listed(columns, record) if columns else options
    answers = {key: given[key] for key in ANSWER_KEYS if key in given and not _is_missing(given[key])}
    indices = {key: given[key] for key in INDEX_KEYS if key in given and _is_index(given[key])} if options else {}
    used = {"id", "video", "question", "options", "answer", *option_keys, *columns, *answers, *indices}
    keys = Keys(options, answers, indices, {key: value for key, value in record.items() if key not in used})
    _refuse_misspelt(keys, given)
    if not options:
        _refuse_hidden_options(keys)
    return keys


def _can_be_options(key: str, value: Any) -> bool:
    is_list = isinstance(value, list | tuple | Mapping)
    return bool(value) if is_list else key not in _SINGULAR and not _is_missing(value)


def _is_missing(value: Any) -> bool:
    """Return whether a value is null, blank text, or NaN, which tables hold for missing values."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _is_index(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and re.fullmatch(r"\s*(?:[0-9]{1,2}|[A-Za-z])\s*", value) is not None
    )


def _single_options(names: Iterable[str], given: Mapping[str, Any]) -> Any:
    """Return the value of the options; raise ItemError if several keys hold different ones."""
    found = list(names)
    for other in found[1:]:
        if given[other] != given[found[0]]:
            raise ItemError(f"the item has different options under {found[0]!r} and {other!r}; keep one of them")
    return given[found[0]] if found else None


def _option_columns(record: Mapping[str, Any]) -> list[str]:
    """Return the columns that hold one option each (option_a, option0, a0, A), in order; [] if there are none.

    The last ones may be empty: questions of one table can have different numbers of options.
    """
    families: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for key in record:
        if (match := _COLUMN.fullmatch(key)) and (match[1] or match[2].isupper()):
            kind = "digit" if match[2].isdigit() else "upper" if match[2].isupper() else "lower"
            place = int(match[2]) if kind == "digit" else ord(match[2].lower()) - ord("a")
            families.setdefault((match[1], kind), []).append((place, key))
    for (_, kind), found in families.items():
        first, columns = min(found)[0], [key for _, key in sorted(found)]
        in_order = sorted(place for place, _ in found) == list(range(first, first + len(found)))
        if in_order and first <= (kind == "digit") and len(_listed(columns, record)) >= 2:
            return columns
    return []


def _listed(columns: list[str], record: Mapping[str, Any]) -> list[Any]:
    """Return the options in the given columns; those numbered from 1 keep the number, which an answer may refer to."""
    texts = [record[key] for key in columns]
    while texts and _is_missing(texts[-1]):
        texts.pop()
    return [f"{place}. {text}" for place, text in enumerate(texts, 1)] if columns[0].endswith("1") else texts


def _refuse_misspelt(keys: Keys, given: Mapping[str, Any]) -> None:
    """Raise ItemError if a field is missing and an unknown key resembles one of its names."""
    present = {
        "video": "video" in given,
        "question": "question" in given,
        "options": bool(keys.options),
        "answer": bool(keys.answers or keys.indices or "answer" in given),
        "id": "id" in given,
    }
    for field, names in NAMES.items():
        for key in () if present[field] else keys.extra:
            if key in names:  # a known name whose value cannot be the field's
                continue
            if intended := next((name for name in names if _resembles(key, name)), None):
                raise ItemError(f"the item has the unknown key {key[:80]!r}; did you mean {intended!r}?")


def _resembles(key: str, name: str) -> bool:
    folded, known = (re.sub(r"[\s_-]", "", text.casefold()) for text in (key, name))
    if folded == known:
        return True
    if len(known) < 5 or abs(len(folded) - len(known)) > 2:
        return False
    allowed = 2 if len(known) >= _LONG_NAME and folded[:1] == known[0] else 1
    return _edits(folded, known) <= allowed


def _edits(left: str, right: str) -> int:
    """Return the Damerau-Levenshtein distance (adjacent swaps count once) of two words."""
    before, row = [0] * (len(right) + 1), list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        last, row, older = row, [i], before
        for j, other in enumerate(right, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == right[j - 2] and left[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]


def _refuse_hidden_options(keys: Keys) -> None:
    """Raise ItemError if an item without options seems to hold them under an unknown key."""
    if index := next((key for key in INDEX_KEYS if key in keys.extra and _is_index(keys.extra[key])), None):
        raise ItemError(
            f"the item has {index!r} and no options; give them under 'options', or the answer's text under 'answer'"
        )
    answers = {value.strip() for value in keys.answers.values() if isinstance(value, str)}
    for key, value in keys.extra.items():
        texts = isinstance(value, Mapping) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
        letters = [chr(ord("A") + place) for place in range(len(value))] if texts else []
        listed = (
            isinstance(value, list) and len(value) >= 2 and bool(answers.intersection([*map(str, value), *letters]))
        )
        keyed = isinstance(value, Mapping) and len(value) >= 2 and sorted(map(str, value)) == letters
        if listed or keyed:
            raise ItemError(
                f"the item has no options, and what is under {key[:80]!r} looks like options; "
                f"rename that key to 'options', or leave it out if the question is open"
            )
