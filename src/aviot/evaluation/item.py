"""One item: a question about a video, its options if it has any, and what is right."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aviot.data.record import RepeatedKey
from aviot.evaluation.choices import MAX_OPTIONS
from aviot.evaluation.text import fold, normal
from aviot.values import as_whole

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LABEL = re.compile(r"\s*[(\[]?([A-Z])\s*[.):\]]\s*(?=\S)")
_LETTER = re.compile(r"[\s(\[]*([A-Za-z])[\s.):\]]*")
FIELDS = ("id", "video", "question", "options", "answer")


class ItemError(ValueError):
    """Something that is no item, and why."""


@dataclass(frozen=True)
class Asked:
    """A user turn, and the range of its characters that ask."""

    text: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Item:
    """A checked item. `right` is the right option's number; `answers` are what an open question accepts.

    An item that has neither can be asked and not scored; `problem` says why. `asked` is the user turn where a benchmark
    words its own, and `part` the task of a benchmark that has several. `columns` are further values of its record, such
    as a category, that scores can be reported by.
    """

    id: str
    video: str
    question: str
    options: tuple[str, ...]
    right: int | None
    answers: tuple[str, ...]
    problem: str | None = None
    asked: Asked | None = None
    part: str | None = None
    columns: Mapping[str, str | int | float | bool] = field(default_factory=dict, hash=False)

    @property
    def is_choice(self) -> bool:
        """Whether it has options."""
        return bool(self.options)

    @property
    def has_answer(self) -> bool:
        """Whether a reply to it can be scored."""
        return self.right is not None or bool(self.answers)


def parse_item(value: Any, default_id: str) -> Item:
    """Check what a file held, and say exactly what is wrong with it."""
    if not isinstance(value, Mapping):
        raise ItemError(f"an item must be an object with {', '.join(FIELDS)}; got {type(value).__name__}")
    if isinstance(value, RepeatedKey):
        raise ItemError(f"the item has the key {value.key[:80]!r} twice; it is unclear which is meant")
    options = _options(value.get("options"))
    right, answers, problem = _answer(value.get("answer"), options)
    return Item(
        id=_id(value.get("id"), default_id),
        video=_video(value.get("video")),
        question=_text(value.get("question"), "question"),
        options=options,
        right=right,
        answers=answers,
        problem=problem,
        columns={k: v for k, v in value.items() if k not in FIELDS and isinstance(v, str | int | float | bool)},
    )


def _id(value: Any, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ItemError(f"id must be text or a whole number, got {value!r}")
    return _sound(str(value), "id")


def _video(value: Any) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("path"), str):  # as a dataset's video column gives it
        value = value["path"]
    name = _text(value, "video")
    if "://" in name:
        raise ItemError(f"video must be a path on this machine, got the address {name[:80]!r}; download it")
    if _CONTROL.search(name):
        raise ItemError(f"video must be a path without control characters, got {name[:80]!r}")
    return name


def _text(value: Any, what: str) -> str:
    if value is None:
        raise ItemError(f"the item has no {what}; it needs video and question, and an answer to be scored")
    if not isinstance(value, str) or not value.strip():
        raise ItemError(f"{what} must be text, got {value!r:.80}")
    return _sound(value.strip(), what)


def _sound(text: str, what: str) -> str:
    """Half of a surrogate pair is legal in JSON and no text anywhere else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ItemError(f"{what} holds half a character (a lone surrogate, such as \\ud800)") from None
    return text


def _options(value: Any) -> tuple[str, ...]:
    """Texts in the order of their letters; labels that the file itself wrote before them are taken off."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        expected = [chr(ord("A") + i) for i in range(len(value))]
        if sorted(map(str, value)) != expected:
            raise ItemError(f"options as an object must have the keys {expected}, got {sorted(map(str, value))}")
        value = [value[letter] for letter in expected]
    if not isinstance(value, list | tuple):
        raise ItemError(f"options must be a list of texts, or an object of letters and texts; got {value!r:.80}")
    if not value:
        return ()
    if not 2 <= len(value) <= MAX_OPTIONS:
        raise ItemError(f"options must be 2 to {MAX_OPTIONS}, or left out for an open question; got {len(value)}")
    texts = [_text(_as_text(option), f"option {number}") for number, option in enumerate(value, 1)]
    labels = [_LABEL.match(text) for text in texts]
    if all(label is not None and ord(label[1]) - ord("A") == place for place, label in enumerate(labels)):
        texts = [text[label.end() :] for text, label in zip(texts, labels, strict=True) if label is not None]
    return tuple(texts)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _answer(value: Any, options: tuple[str, ...]) -> tuple[int | None, tuple[str, ...], str | None]:
    """The right option or the accepted texts; where there are none, why."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None, (), "it has no answer"
    if options:
        right = _right_option(value, options)
        return (right, (), None) if isinstance(right, int) else (None, (), right)
    given = value if isinstance(value, list | tuple) else [value]
    texts = tuple(_as_text(each) for each in given)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return None, (), f"its answer must be text or a list of texts, got {value!r:.80}"
    return None, tuple(_sound(text.strip(), "answer") for text in texts), None


def _right_option(value: Any, options: tuple[str, ...]) -> int | str:
    """The number of the option that an answer means, or what is wrong with the answer."""
    count = len(options)
    index = as_whole(value)
    if index is not None:
        return index if 0 <= index < count else f"its answer {index} is no option's number, 0 to {count - 1}"
    if not isinstance(value, str):
        return f"its answer must be an option's letter, number or text, got {value!r:.80}"
    meant = {i for i, option in enumerate(options) if normal(option) == normal(value)}
    if letter := _LETTER.fullmatch(fold(value)):
        place = ord(letter[1].upper()) - ord("A")
        meant |= {place} if place < count else set()
    if not meant and value.strip().isdecimal():
        meant.add(int(value))
    if len(meant) > 1:
        return f"its answer {value!r:.80} means more than one option; give its number, from 0"
    if not meant or not 0 <= min(meant) < count:
        return f"its answer {value!r:.80} is none of the {count} options, by letter, number from 0 or text"
    return meant.pop()
