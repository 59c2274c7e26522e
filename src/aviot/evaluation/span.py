"""Which characters of a benchmark's prompt ask, told by the record that the prompt was made of."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from aviot.models.prompt import question_range

OPTION_LISTS = ("options", "option", "candidates", "choices")
_OPTION_COLUMN = re.compile(r"(?:option|a)_?([0-9])")
_LABEL = r"(?:[(\[]?(?:[A-Z]|\d{1,2})[.):\]]\s*)?"
_HEADING = r"[^\S\n]*(?:\n[^\S\n]*(?:options?|choices|candidates)\s*:?[^\S\n]*)?\s*"
_OPENING = re.compile(r"(?:^|[\n:])[^\S\n]*$")
_QUESTION_MARK = re.compile(r"\s?[?\uff1f]")


def span_in(text: str, record: Mapping[str, Any]) -> tuple[int, int]:
    """The range of a prompt that holds the record's question and options, and neither what introduces nor what follows.

    Case and spacing may differ, labels may stand before options, options that the prompt leaves out are passed over. A
    prompt that does not hold its record's question is cut by the wording of its instructions instead.
    """
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        return question_range(text)
    options = list(_options(record))
    found = [_extent(text, match, options) for match in _pattern(question).finditer(text)]
    if not found:
        return question_range(text)
    _, _, low, high = max(found, key=lambda each: (each[0], each[1], -each[2]))
    return low, high


def _extent(text: str, question: re.Match[str], options: Iterable[str]) -> tuple[int, bool, int, int]:
    """How many options follow a place where the question stands, whether it opens a line, and the whole's range."""
    end, matched = question.end(), 0
    for option in options:
        gap = _HEADING if not matched else r"\s*"
        if match := re.compile(gap + _LABEL + _pattern(option).pattern, re.IGNORECASE).match(text, end):
            end, matched = match.end(), matched + 1
    if not matched and (mark := _QUESTION_MARK.match(text, end)):
        end = mark.end()
    return matched, bool(_OPENING.search(text[: question.start()])), question.start(), end


def _options(record: Mapping[str, Any]) -> Iterable[str]:
    """The record's options in order, whichever way it keeps them."""
    listed = next((record[name] for name in OPTION_LISTS if record.get(name) is not None), None)
    if listed is None:
        columns = sorted((match[1], name) for name in record if (match := _OPTION_COLUMN.fullmatch(name)))
        listed = [record[name] for _, name in columns]
    elif isinstance(listed, Mapping):
        listed = list(listed.values())
    elif isinstance(listed, str):
        listed = [listed]
    return (str(option) for option in listed if str(option).strip())


def _pattern(text: str) -> re.Pattern[str]:
    """A text, however it is spaced and whichever case it is in."""
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)
