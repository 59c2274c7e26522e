"""What the model is asked: question, options and instruction, and which characters of it ask.

The question span is what compression listens to: question and options, without the instruction on how to answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aviot.evaluation.item import Asked, Item

CHOICE_INSTRUCTION = "Answer with the option's letter from the given choices directly."
OPEN_INSTRUCTION = "Answer the question using a single word or phrase."


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
