"""Requests of lmms-eval as items; nothing here imports lmms-eval."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.backbones.llava_video.prompt import question_range
from aviot.evaluation.item import Item, Prompt
from aviot.evaluation.text import LETTER
from aviot.request import MAX_NEW_TOKENS

DEFAULT_STOP = "\n\n"
"""Stop string that lmms-eval adds to tasks without one; it would cut off answers that reason first."""

MISTYPED_SUFFIXES = (".webm", ".gif")
"""Suffixes of videos that lmms-eval passes as audio or image."""

_GREEDY: dict[str, tuple[Any, ...]] = {"do_sample": (None, False), "temperature": (None, 0), "num_beams": (None, 1)}


OPTION_LISTS = ("options", "option", "candidates", "choices")
_OPTION_COLUMN = re.compile(r"(?:option|a)_?([0-9])")
_LABEL = r"[(\[]?(?:[A-Z]|\d{1,2})[.):\]]\s*"
_HEADING = r"(?:\s*\n[^\S\n]*(?:options?|choices|candidates)\s*:?)?"
_NEXT = rf"(?:\s*\n\s*(?:{_LABEL})?|[^\S\n]+{_LABEL})"  # an option starts a line or has a label
_JOINED = re.compile(LETTER * 2)
_OPENING = re.compile(r"(?:^|[\n:])[^\S\n]*$")
_QUESTION_MARK = re.compile(r"\s*[?\uff1f]")


@dataclass(frozen=True)
class Decoding:
    """Length limit and stop strings of an answer."""

    max_new_tokens: int
    stops: tuple[str, ...]

    def cut(self, reply: str) -> str:
        """Return a reply up to the first stop string."""
        for stop in self.stops:
            reply = reply.split(stop)[0]
        return reply.strip()


def read_decoding(generation: Mapping[str, Any]) -> Decoding:
    """Return a task's generation settings; raise ValueError if they are not greedy."""
    for name, allowed in _GREEDY.items():
        if generation.get(name) not in allowed:
            raise ValueError(
                f"the task asks for {name}={generation[name]!r}, and aviot decodes greedily; set its gen_kwargs to "
                "temperature=0,do_sample=False,num_beams=1, or choose another task"
            )
    until = generation.get("until") or ()
    stops = tuple(stop for stop in ([until] if isinstance(until, str) else until) if stop and stop != DEFAULT_STOP)
    return Decoding(int(generation.get("max_new_tokens") or MAX_NEW_TOKENS), stops)


def read_request(messages: Sequence[Mapping[str, Any]], record: Mapping[str, Any], name: str) -> Item:
    """Return a request with one video and one user turn as an item; raise ValueError for any other chat."""
    roles = [message["role"] for message in messages]
    if roles != ["user"]:
        raise ValueError(f"{name}: expected one user turn, got {roles}; aviot answers single turns")
    content = messages[0]["content"]
    texts = [part["text"] for part in content if part["type"] == "text"]
    media = [part for part in content if part["type"] != "text"]
    if len(media) != 1 or not _is_video(media[0]):
        types = [part["type"] for part in media] or "nothing"
        raise ValueError(
            f"{name}: expected the path of one video, got {types}; aviot answers questions about one video"
        )
    text = "\n".join(texts)
    prompt = Prompt(text, question_span(text, record))
    return Item(id=name, video=media[0]["url"], question=text, options=(), right=None, answers=(), prompt=prompt)


def _is_video(part: Mapping[str, Any]) -> bool:
    path = part["url"]
    return isinstance(path, str) and (part["type"] == "video" or path.lower().endswith(MISTYPED_SUFFIXES))


def question_span(text: str, record: Mapping[str, Any]) -> tuple[int, int]:
    """Return the character range of a prompt that holds the record's question and options, without instructions.

    Case and spacing may differ, options may have labels, and options missing from the prompt are skipped. A prompt that
    does not contain its record's question is cut by the wording of known instructions instead.
    """
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        return question_range(text)
    options = list(_options(record))
    whole = [
        match for match in _pattern(question).finditer(text) if not any(_is_inside_word(text, e) for e in match.span())
    ]
    found = [_candidate(text, match, question, options) for match in whole]
    if not found:
        return question_range(text)
    best = max(found, key=lambda each: (each.options, each.opens, each.is_exact, -each.low))
    return best.low, best.high


@dataclass(frozen=True)
class _Candidate:
    """A range that may be the question span, and its evidence: options that follow, a line start, an exact match."""

    low: int
    high: int
    options: int
    opens: bool
    is_exact: bool


def _candidate(text: str, match: re.Match[str], question: str, options: Iterable[str]) -> _Candidate:
    """Return the range of one match of the question and the options that follow it."""
    end, matched = match.end(), 0
    for option in options:
        before = "" if matched else _HEADING
        found = re.compile(before + _NEXT + _pattern(option).pattern, re.IGNORECASE).match(text, end)
        if found and not _is_inside_word(text, found.end()):
            end, matched = found.end(), matched + 1
    if not matched and (mark := _QUESTION_MARK.match(text, end)):
        end = mark.end()
    opens = bool(_OPENING.search(text[: match.start()]))
    return _Candidate(match.start(), end, matched, opens, match[0] == question.strip())


def _options(record: Mapping[str, Any]) -> Iterable[str]:
    """Return the record's options in order: a list, an object's values, or one column each."""
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
    """Return a pattern of a text that ignores case and spacing."""
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


def _is_inside_word(text: str, offset: int) -> bool:
    """Return whether an offset is between two letters: a match that ends there is part of a longer word."""
    return offset > 0 and bool(_JOINED.match(text, offset - 1))
