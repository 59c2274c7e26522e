"""What a benchmark is: where a record keeps question, options, answer and video, and the words around them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aviot.evaluation.errors import ItemError
from aviot.evaluation.item import Asked, Item, parse_item
from aviot.evaluation.keys import scalars
from aviot.utils.values import as_whole

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Wording:
    """A prompt around a question: what introduces it, what stands over its options, and what follows.

    `label` is what each option gets before it, with its letter for L; empty where the record's options carry their own.
    """

    before: str = ""
    heading: str = ""
    label: str = "L. "
    after: str = ""

    def around(self, question: str, options: Sequence[str]) -> Asked:
        """The user turn; what asks is question and options."""
        labels = [self.label.replace("L", chr(ord("A") + place)) for place in range(len(options))]
        listed = "".join(f"\n{label}{option}" for label, option in zip(labels, options, strict=True))
        asked = question + (self.heading + listed if options else "")
        return Asked(f"{self.before}{asked}{self.after}", (len(self.before), len(self.before) + len(asked)))


@dataclass(frozen=True)
class Question:
    """What a record asks. `listed` are the options as the prompt lists them, `options` as replies are read by them."""

    text: str
    listed: Sequence[str]
    options: Sequence[str]
    answer: Any


@dataclass(frozen=True)
class Part:
    """A task of a benchmark: its name in lmms-eval, the dataset's configuration and split, what is asked and how."""

    name: str
    task: str
    configuration: str
    split: str
    question: Callable[[Record], Question]
    wording: Callable[[Record], Wording]
    folder: str = ""  # that its videos lie in, where the same name may stand for several


@dataclass(frozen=True)
class Benchmark:
    """One of the ten. `counted` is the part that its aggregate score is of, or none for all together."""

    name: str
    title: str
    parts: tuple[Part, ...]
    video: Callable[[Record], str]
    max_new_tokens: int = 64
    counted: str | None = None

    def part(self, name: str) -> Part:
        """A part by its name."""
        return next(part for part in self.parts if part.name == name)

    def item(self, record: Record, part: Part, number: str, video: str | None = None) -> Item:
        """The record as an item; ItemError where it is not in the benchmark's format."""
        try:
            asked = part.question(record)
            name, words = video or self.video(record), part.wording(record)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ItemError(f"it is no record of {part.task}: {type(error).__name__} {error}") from None
        index = as_whole(asked.answer) if asked.options else None
        answer = {"answer": asked.answer} if index is None else {"answer_index": index}
        told = {"video": name, "question": asked.text, "options": list(asked.options)}
        item = parse_item(told | answer, number)
        turn = words.around(asked.text, asked.listed)
        part_name = part.name if len(self.parts) > 1 else None
        return replace(item, asked=turn, part=part_name, columns=scalars(record))
