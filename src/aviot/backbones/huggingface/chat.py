"""Conversations in a checkpoint's own chat template: prompts, and the answers to be learned that follow them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.video import Video

Turns = Sequence[tuple[str, str]]
"""Questions and their answers."""

Render = Callable[[list[dict[str, Any]], bool], str]
"""A chat template: messages as text, with the start of an answer at the end or (False) without."""

OPEN, CLOSE = "\ue000", "\ue001"  # of marks in the place of questions and answers; private use, so in no real text


@dataclass(frozen=True)
class Segment:
    """Text of a conversation that is learned as a whole or not at all."""

    text: str
    supervised: bool


@dataclass(frozen=True)
class ChatText:
    """A prompt as text and its video, whose placeholder is in it; in training, also what follows the prompt."""

    text: str
    video: Video
    following: tuple[Segment, ...] = ()


def messages_of(questions: Sequence[str], answers: Sequence[str], system: str | None = None) -> list[dict[str, Any]]:
    """Return messages of a conversation about a video, which precedes the first question."""
    messages: list[dict[str, Any]] = []
    if system is not None:
        messages.append({"role": "system", "content": [{"type": "text", "text": system}]})
    for number, question in enumerate(questions):
        video = [] if number else [{"type": "video"}]
        messages.append({"role": "user", "content": [*video, {"type": "text", "text": question}]})
        if number < len(answers):
            messages.append({"role": "assistant", "content": [{"type": "text", "text": answers[number]}]})
    return messages


def training_segments(turns: Turns, system: str | None, render: Render) -> tuple[Segment, ...]:
    """Return a conversation's text in segments; the first is the prompt of the first question.

    The text up to an answer is that of the prompt which asks for it, so that training and answering agree. An answer is
    supervised together with the text that ends its turn.
    """
    asked, answered = ([f"{OPEN}{kind}{number}{CLOSE}" for number in range(len(turns))] for kind in "qa")
    prompt = render(messages_of(asked, answered[:-1], system), True)
    whole = render(messages_of(asked, answered, system), False)
    before, _, end = whole.rpartition(answered[-1])
    start = before[len(prompt) :] if before.startswith(prompt) else ""
    _check_marks([*asked, *answered[:-1]], prompt)
    _check_marks(answered[-1:], whole)
    segments, rest, end = [], prompt, end.rstrip()
    for mark, (_, answer) in zip(answered, turns, strict=True):
        text, found, rest = rest.partition(mark)
        is_earlier = bool(found)
        closing = end if not is_earlier or rest.startswith(end) else ""
        if is_earlier and not text.endswith(start):
            raise ValueError("the chat template begins answers in different ways; train on records of one question")
        segments.append(Segment(text.removesuffix(start) if is_earlier else text, False))
        segments.append(Segment(start + answer + closing, True))
        rest = rest.removeprefix(closing)
    return tuple(Segment(_filled(each.text, asked, turns), each.supervised) for each in segments)


def _check_marks(marks: Sequence[str], text: str) -> None:
    if any(text.count(mark) != 1 for mark in marks):
        raise ValueError(
            "the chat template leaves out or repeats parts of a conversation; use the chat template of the model's own "
            "checkpoint"
        )


def _filled(text: str, marks: Sequence[str], turns: Turns) -> str:
    for mark, (question, _) in zip(marks, turns, strict=True):
        text = text.replace(mark, question)
    return text
