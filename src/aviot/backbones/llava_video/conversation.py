"""A whole conversation about a video as the decoder is trained on it: answers are supervised, the rest is given."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aviot.backbones.llava_video.prompt import chat_prompt, question_range

TURN_END = "<|im_end|>"


@dataclass(frozen=True)
class Piece:
    """Text that is supervised as a whole or not at all, and the characters of it that ask."""

    text: str
    supervised: bool
    question: tuple[int, int] | None = None


@dataclass(frozen=True)
class Conversation:
    """A conversation around one video: the text before its placeholder, and the pieces after."""

    before: str
    pieces: tuple[Piece, ...]


def chat_conversation(
    turns: Sequence[tuple[str, str]], duration: float, times: Sequence[float], system: str | None = None
) -> Conversation:
    """Lay out the prompt of the first question, its answer, the second question, …, up to the end of the last answer.

    Text and layout are those of the prompts of answering, so that training and answering agree. An answer is supervised
    with the mark that ends it. `system` is the text of the system turn (None: the prompts' own).
    """
    if not turns:
        raise ValueError("a conversation needs at least one question and its answer")
    prompt = chat_prompt(turns[0][0], duration, times, system=system)
    pieces = [Piece(prompt.after, False, prompt.question), Piece(turns[0][1] + TURN_END, True)]
    opening = "\n<|im_start|>user\n"
    for question, answer in turns[1:]:
        low, high = question_range(question)
        text = f"{opening}{question}{TURN_END}\n<|im_start|>assistant\n"
        pieces.append(Piece(text, False, (len(opening) + low, len(opening) + high)))
        pieces.append(Piece(answer + TURN_END, True))
    return Conversation(prompt.before, tuple(pieces))


def refuse_marks(turns: Sequence[tuple[str, str]], marks: Iterable[str]) -> None:
    """A tokenizer's special tokens inside a text would be taken for structure: a turn's end, another speaker."""
    for number, turn in enumerate(turns, 1):
        for what, text in zip(("question", "answer"), turn, strict=True):
            if not text.strip():
                raise ValueError(f"{what} {number} is empty")
            refuse_mark(f"{what} {number}", text, marks)


def refuse_mark(what: str, text: str, marks: Iterable[str]) -> None:
    """The same of one text."""
    found = next((mark for mark in marks if mark in text), None)
    if found is not None:
        raise ValueError(f"{what} holds {found}, which would be read as a mark and not as text; leave it out")
