"""An evaluation item: a question about a video with its options and answer, and the prompt made from it.

The question span of a prompt, which conditions the compression, is question and options without the instruction.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aviot.data.json_values import check_keys, check_text
from aviot.evaluation.fields import FIELDS, Keys, Scalar, sort_keys
from aviot.evaluation.fields import ItemError as ItemError
from aviot.evaluation.options import Options, as_text, indexed_option, parse_options, right_option

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


CHOICE_INSTRUCTION = "Answer with the option's letter from the given choices directly."
OPEN_INSTRUCTION = "Answer the question using a single word or phrase."


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
    columns: Mapping[str, Scalar] = field(default_factory=dict, hash=False)

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
    check_keys(value, "the item", ItemError)
    keys = sort_keys(value)
    options = parse_options(keys.options)
    right, answers, problem = _answer(keys, options)
    return Item(
        id=_id(value.get("id"), default_id),
        video=_video(value.get("video")),
        question=_text(value.get("question"), "question"),
        options=options.texts,
        right=right,
        answers=answers,
        problem=problem,
        columns=keys.columns,
    )


def _id(value: Any, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ItemError(f"id must be text or a whole number, got {value!r}")
    return check_text(str(value), "id", ItemError)


def _video(value: Any) -> str:
    check_keys(value, "video", ItemError)
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
    return check_text(value.strip(), what, ItemError)


def _answer(keys: Keys, options: Options) -> tuple[int | None, tuple[str, ...], str | None]:
    """Return the right option or the accepted texts; where there is neither, the reason."""
    if options.texts:
        return _choice(keys, options)
    if not keys.answers:
        return None, (), "it has no answer"
    key, value = _one_answer(keys.answers)
    given = value if isinstance(value, list | tuple) else [value]
    texts = tuple(as_text(each) for each in given)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return None, (), f"its {key} must be text or a list of texts, got {value!r:.80}"
    return None, tuple(check_text(text.strip(), key, ItemError) for text in texts), None


def _choice(keys: Keys, options: Options) -> tuple[int | None, tuple[str, ...], str | None]:
    """Return the right option, which all keys that name it have to agree on."""
    meant: dict[str, int] = {}
    problem: str | None = None
    for key, value in keys.answers.items():
        found = right_option(value, options)
        if isinstance(found, int):
            meant[key] = found
        else:
            problem = problem or found
    for key, value in keys.indices.items():
        if (place := indexed_option(value, options, next(iter(meant.values()), None))) is not None:
            meant[key] = place
        elif not keys.answers:
            problem = f"its {key} {value!r} is no option's index, 0 to {len(options.texts) - 1}, or letter"
    if len(set(meant.values())) > 1:
        told = ", ".join(f"{key!r} means {options.texts[place]!r:.60}" for key, place in meant.items())
        raise ItemError(f"the item has answers that differ: {told}; keep one of them")
    if problem is not None or not meant:
        return None, (), problem or "it has no answer"
    return next(iter(meant.values())), (), None


def _one_answer(answers: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the one answer of an open question, which several keys may repeat."""
    (key, value), *others = answers.items()
    for other, said in others:
        if said != value:
            raise ItemError(f"the item has answers that differ under {key!r} and {other!r}; keep one of them")
    return key, value


@dataclass(frozen=True)
class Instructions:
    """Sentences after a question that say how to answer; empty for none."""

    choice: str = CHOICE_INSTRUCTION
    open: str = OPEN_INSTRUCTION


def ask(question: str, options: Sequence[str], instruction: str) -> Asked:
    """Question, lettered options a line each, instruction; the span ends before the instruction."""
    lines = [question, *(f"{chr(ord('A') + i)}. {option}" for i, option in enumerate(options))]
    asked = "\n".join(lines)
    return Asked(f"{asked}\n{instruction}" if instruction else asked, (0, len(asked)))


def ask_item(item: Item, instructions: Instructions) -> Asked:
    """The user turn of an item: a benchmark's, or ours."""
    if item.asked is not None:
        return item.asked
    return ask(item.question, item.options, instructions.choice if item.is_choice else instructions.open)
