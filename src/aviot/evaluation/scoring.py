"""A reply scored: pure functions of an item and a text."""

from dataclasses import dataclass

from aviot.evaluation.choices import choose
from aviot.evaluation.exact import is_exact
from aviot.evaluation.item import Item


@dataclass(frozen=True)
class Score:
    """Whether a reply is right (None where the item has no answer), what it was read as, and how."""

    correct: bool | None
    read_as: str | None
    how: str


def score_reply(item: Item, reply: str) -> Score:
    """Multiple choice by the option a reply chooses, open answers by exact match."""
    if item.is_choice:
        choice = choose(reply, item.options)
        letter = None if choice.index is None else chr(ord("A") + choice.index)
        return Score(None if item.right is None else choice.index == item.right, letter, choice.how)
    if not item.answers:
        return Score(None, None, "exact")
    return Score(is_exact(reply, item.answers), None, "exact")


def answer_text(item: Item) -> str | None:
    """What is right, in words for a person or a judge."""
    if item.right is not None:
        return f"{chr(ord('A') + item.right)}. {item.options[item.right]}"
    return " / ".join(item.answers) or None
