"""Requests of lmms-eval as items; nothing here imports lmms-eval."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.evaluation.item import Asked, Item
from aviot.evaluation.text import LETTER
from aviot.models.prompt import question_range
from aviot.request import MAX_NEW_TOKENS

FILLED_IN = "\n\n"
"""The stop that the harness adds to tasks that name none; it would cut answers that reason first."""

MISTAKEN = (".webm", ".gif")
"""Videos that the harness takes for sound or for a picture by their ending."""

_GREEDY: dict[str, tuple[Any, ...]] = {"do_sample": (None, False), "temperature": (None, 0), "num_beams": (None, 1)}


OPTION_LISTS = ("options", "option", "candidates", "choices")
_OPTION_COLUMN = re.compile(r"(?:option|a)_?([0-9])")
_LABEL = r"[(\[]?(?:[A-Z]|\d{1,2})[.):\]]\s*"
_HEADING = r"(?:\s*\n[^\S\n]*(?:options?|choices|candidates)\s*:?)?"
_NEXT = rf"(?:\s*\n\s*(?:{_LABEL})?|[^\S\n]+{_LABEL})"  # an option begins a line, or has a label
_JOINED = re.compile(LETTER * 2)
_OPENING = re.compile(r"(?:^|[\n:])[^\S\n]*$")
_QUESTION_MARK = re.compile(r"\s*[?\uff1f]")


@dataclass(frozen=True)
class Decoding:
    """How long an answer may be, and what ends it."""

    max_new_tokens: int
    stops: tuple[str, ...]

    def cut(self, reply: str) -> str:
        """A reply up to the first stop."""
        for stop in self.stops:
            reply = reply.split(stop)[0]
        return reply.strip()


def read_decoding(told: Mapping[str, Any]) -> Decoding:
    """A task's generation settings; ValueError for those that are not greedy."""
    for name, allowed in _GREEDY.items():
        if told.get(name) not in allowed:
            raise ValueError(
                f"the task asks for {name}={told[name]!r}, and aviot decodes greedily; say --gen_kwargs "
                "temperature=0,do_sample=False,num_beams=1, or choose another task"
            )
    until = told.get("until") or ()
    stops = tuple(stop for stop in ([until] if isinstance(until, str) else until) if stop and stop != FILLED_IN)
    return Decoding(int(told.get("max_new_tokens") or MAX_NEW_TOKENS), stops)


def read_request(messages: Sequence[Mapping[str, Any]], record: Mapping[str, Any], name: str) -> Item:
    """The one video and the text of a user turn; ValueError for chats of another shape."""
    roles = [message["role"] for message in messages]
    if roles != ["user"]:
        raise ValueError(f"{name}: expected one user turn, got {roles}; aviot answers single turns")
    content = messages[0]["content"]
    texts = [part["text"] for part in content if part["type"] == "text"]
    media = [part for part in content if part["type"] != "text"]
    if len(media) != 1 or not _is_video(media[0]):
        told = [part["type"] for part in media] or "nothing"
        raise ValueError(f"{name}: expected the path of one video, got {told}; aviot answers questions about one video")
    text = "\n".join(texts)
    asked = Asked(text, span_in(text, record))
    return Item(id=name, video=media[0]["url"], question=text, options=(), right=None, answers=(), asked=asked)


def _is_video(part: Mapping[str, Any]) -> bool:
    path = part["url"]
    return isinstance(path, str) and (part["type"] == "video" or path.lower().endswith(MISTAKEN))


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
