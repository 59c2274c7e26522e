"""Which characters of a benchmark's prompt ask, told by the record that the prompt was made of."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aviot.backbones.llava_video.prompt import question_range
from aviot.evaluation.text import LETTER

OPTION_LISTS = ("options", "option", "candidates", "choices")
_OPTION_COLUMN = re.compile(r"(?:option|a)_?([0-9])")
_LABEL = r"[(\[]?(?:[A-Z]|\d{1,2})[.):\]]\s*"
_HEADING = r"(?:\s*\n[^\S\n]*(?:options?|choices|candidates)\s*:?)?"
_NEXT = rf"(?:\s*\n\s*(?:{_LABEL})?|[^\S\n]+{_LABEL})"  # an option begins a line, or has a label
_JOINED = re.compile(LETTER * 2)
_OPENING = re.compile(r"(?:^|[\n:])[^\S\n]*$")
_QUESTION_MARK = re.compile(r"\s*[?\uff1f]")


def span_in(text: str, record: Mapping[str, Any]) -> tuple[int, int]:
    """The range of a prompt that holds the record's question and options, and neither what introduces nor what follows.

    Case and spacing may differ, labels may stand before options, options that the prompt leaves out are passed over. A
    prompt that does not hold its record's question is cut by the wording of its instructions instead.
    """
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        return question_range(text)
    options = list(_options(record))
    whole = [
        match for match in _pattern(question).finditer(text) if not any(_inside_a_word(text, e) for e in match.span())
    ]
    found = [_place(text, match, question, options) for match in whole]
    if not found:
        return question_range(text)
    best = max(found, key=lambda each: (each.options, each.opens, each.is_exact, -each.low))
    return best.low, best.high


@dataclass(frozen=True)
class _Place:
    """Where the question may stand, and what speaks for it: options after it, a line that it opens, its very words."""

    low: int
    high: int
    options: int
    opens: bool
    is_exact: bool


def _place(text: str, match: re.Match[str], question: str, options: Iterable[str]) -> _Place:
    """The question at one place, with the options that follow it there."""
    end, matched = match.end(), 0
    for option in options:
        before = "" if matched else _HEADING
        found = re.compile(before + _NEXT + _pattern(option).pattern, re.IGNORECASE).match(text, end)
        if found and not _inside_a_word(text, found.end()):
            end, matched = found.end(), matched + 1
    if not matched and (mark := _QUESTION_MARK.match(text, end)):
        end = mark.end()
    opens = bool(_OPENING.search(text[: match.start()]))
    return _Place(match.start(), end, matched, opens, match[0] == question.strip())


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


def _inside_a_word(text: str, place: int) -> bool:
    """Whether letters stand on both sides of a place; a text that ends there is only part of a longer one."""
    return place > 0 and bool(_JOINED.match(text, place - 1))
