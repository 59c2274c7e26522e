"""An evaluation item: a question about a video with its options and answer, and the prompt made from it.

The question span of a prompt, which conditions the compression, is question and options without the instruction.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aviot.data.checks import check_keys, check_text
from aviot.evaluation.fields import FIELDS, Keys, Scalar, sort_keys
from aviot.evaluation.fields import ItemError as ItemError
from aviot.evaluation.options import Options, as_text, named_option, option_at, parse_options
from aviot.grounding.spans import Span

CHOICE_INSTRUCTION = "Answer with the option's letter from the given choices directly."
OPEN_INSTRUCTION = "Answer the question using a single word or phrase."

_RENAMED = {"ask": "build_prompt", "ask_item": "item_prompt", "Asked": "Prompt"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Prompt:
    """The text of a user turn, and the character range of it that is the question span."""

    text: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Item:
    """A validated item. `right` is the index of the right option; `answers` are the accepted texts of an open question.

    An item with neither is asked but not scored; `problem` says why. `prompt` is set if a benchmark words its own user
    turn, `part` if a benchmark has several tasks. `columns` are extra values of the record, such as a category, by
    which scores can be reported. `windows` are the annotated spans of a grounding item, in seconds, and `duration` the
    length of its video where the benchmark says it.
    """

    id: str
    video: str
    question: str
    options: tuple[str, ...]
    right: int | None
    answers: tuple[str, ...]
    problem: str | None = None
    prompt: Prompt | None = None
    part: str | None = None
    columns: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    windows: tuple[Span, ...] = ()
    duration: float | None = None

    @property
    def is_choice(self) -> bool:
        """Return whether it is a multiple-choice item."""
        return bool(self.options)

    @property
    def kind(self) -> str:
        """Return how replies to it are scored: as a choice, by their times, or as text."""
        return "choice" if self.options else "grounding" if self.windows else "open"

    @property
    def has_answer(self) -> bool:
        """Return whether a reply to it can be scored."""
        return self.right is not None or bool(self.answers or self.windows)


def parse_item(value: Any, default_id: str) -> Item:
    """Return a record as an item; raise ItemError if it is none."""
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
    if isinstance(value, Mapping) and isinstance(value.get("path"), str):  # the form of a dataset's video column
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
    """Return the right option, the accepted texts, and the reason if there is neither."""
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
    """Return the right option and the reason if there is none; raise ItemError if keys name different options."""
    named: dict[str, int] = {}
    problem: str | None = None
    for key, value in keys.answers.items():
        found = named_option(value, options)
        if isinstance(found, int):
            named[key] = found
        else:
            problem = problem or found
    for key, value in keys.indices.items():
        if (index := option_at(value, options, next(iter(named.values()), None))) is not None:
            named[key] = index
        elif not keys.answers:
            problem = f"its {key} {value!r} is no option's index, 0 to {len(options.texts) - 1}, or letter"
    if len(set(named.values())) > 1:
        readings = ", ".join(f"{key!r} means {options.texts[index]!r:.60}" for key, index in named.items())
        raise ItemError(f"the item has answers that differ: {readings}; keep one of them")
    if problem is not None or not named:
        return None, (), problem or "it has no answer"
    return next(iter(named.values())), (), None


def _one_answer(answers: Mapping[str, Any]) -> tuple[str, Any]:
    """Return key and value of an open question's answer; raise ItemError if several keys hold different ones."""
    (key, value), *others = answers.items()
    for other, other_value in others:
        if other_value != value:
            raise ItemError(f"the item has answers that differ under {key!r} and {other!r}; keep one of them")
    return key, value


@dataclass(frozen=True)
class Instructions:
    """Sentences appended to a question that say how to answer; empty for none."""

    choice: str = CHOICE_INSTRUCTION
    open: str = OPEN_INSTRUCTION


def build_prompt(question: str, options: Sequence[str], instruction: str) -> Prompt:
    """Return the question, one line per lettered option, and the instruction, which is outside the question span."""
    lines = [question, *(f"{chr(ord('A') + i)}. {option}" for i, option in enumerate(options))]
    span = "\n".join(lines)
    return Prompt(f"{span}\n{instruction}" if instruction else span, (0, len(span)))


def item_prompt(item: Item, instructions: Instructions) -> Prompt:
    """Return the item's own prompt, or one built with the given instructions."""
    if item.prompt is not None:
        return item.prompt
    return build_prompt(item.question, item.options, instructions.choice if item.is_choice else instructions.open)


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"{name} is now called {_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return globals()[_RENAMED[name]]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
