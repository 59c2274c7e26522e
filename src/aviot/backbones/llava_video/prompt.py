"""Chat prompts for answering and conversations for training: layout, time line, and the range of each question."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PLACEHOLDER = "<image>"
SYSTEM = "You are a helpful assistant."
TURN_END = "<|im_end|>"

# Sentences about the answer's format rather than its content: those of the ten benchmarks that the paper evaluates, in
# their harness's words. Matched at either end of a question, ignoring case and spacing.
_INSTRUCTIONS = (
    r"select the best answer to the following multiple-choice question based on the video(?: and the subtitles)?\.",
    r"respond with only the letter \([A-Z](?:, [A-Z])*,? or [A-Z]\) of the correct option\.",
    r"carefully watch (?:the|this) video and pay attention to [^.\n]*\.",
    r"based on your observations, select the best option that accurately addresses the question\.",
    r"please answer the question about the video\s*[:.]",
    r"(?:you should )?watch and learn the video content\.",
    r"(?:then apply what you learned to )?answer the following (?:multi-choice|open-ended) question"
    r"(?: with the option number \(1, 2, 3, etc\.\))?\.",
    r"the image for this question is at the end of the video\.",
    r"please ignore the quiz question in (?:the )?last frame of the video\.",
    r"you should ignore the quiz question in (?:the )?last frame of the video\.",
    r"answer with the option(?:'|\u2019)?s? letter from the given choices directly(?: and only give the best option)?\.?",  # noqa: E501
    r"answer (?:the|a) question using a (?:single word or phrase|short phrase or sentence)\.?",
    r"(?:please )?answer the question with a (?:single word or phrase|short answer)\.?",
    r"answer (?:the|this) question with (?:the option letter|A, B, C,? or D)\.?",
    r"answer with the option letter only\.?",
    r"please (?:directly )?(?:give|respond with|provide) (?:only )?(?:the best option|your answer)(?: directly)?\s*[:.]?",  # noqa: E501
    r"please provide your answer by stating the letter followed by the full option\.?",
    r"please answer (?:with )?['\"]?yes['\"]? or ['\"]?no['\"]?\s*[:.]?",
    r"only answer yes or no\.?",
    r"only give the best option\.?",
    r"(?:the )?best (?:option|answer)(?: is)?\s*[:\uff1a]\s*\(?",
    r"(?:the )?answer(?: is)?\s*[:\uff1a]",
)
_LEADING = re.compile(rf"\s*(?:{'|'.join(_INSTRUCTIONS)})\s*", re.IGNORECASE)
_TRAILING = re.compile(rf"(?:^|(?<=\n)|(?<=[.?!] )|(?<=[.?!]))(?:{'|'.join(_INSTRUCTIONS)})\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt with one video: the text before and after its placeholder, and the question's range in the latter."""

    before: str
    after: str
    question: tuple[int, int]  # characters of `after`

    @property
    def text(self) -> str:
        """The whole prompt as text."""
        return self.before + PLACEHOLDER + self.after


@dataclass(frozen=True)
class Segment:
    """Text of a conversation that is supervised as a whole or not at all, and the question's range in it."""

    text: str
    supervised: bool
    question: tuple[int, int] | None = None


@dataclass(frozen=True)
class Conversation:
    """A conversation about one video: the text before its placeholder, and the segments after it."""

    before: str
    segments: tuple[Segment, ...]


def time_line(duration: float, times: Sequence[float]) -> str:
    """Return the sentence that states the video's length and the times of its frames."""
    located = ",".join(f"{time:.2f}s" for time in times)
    return (
        f"The video lasts for {duration:.2f} seconds, and {len(times)} frames are uniformly sampled from it. "
        f"These frames are located at {located}.Please answer the following questions related to this video."
    )


def chat_prompt(
    question: str,
    duration: float,
    times: Sequence[float],
    history: Sequence[tuple[str, str]] = (),
    span: tuple[int, int] | None = None,
    system: str | None = None,
) -> ChatPrompt:
    """Return a ChatML prompt: system turn, video with time line, earlier questions and answers, the question.

    `system` is the text of the system turn (None: `SYSTEM`). The range of the question leaves out instructions on the
    answer's format: it is `span`, in characters of the question, or by default `question_range`.
    """
    first = history[0][0] if history else question
    before = f"<|im_start|>system\n{SYSTEM if system is None else system}<|im_end|>\n<|im_start|>user\n"
    after = f"\n{time_line(duration, times)}\n"
    if history:
        after += first
        for (_, answer), following in zip(history, [*(turn[0] for turn in history[1:]), question], strict=True):
            after += f"<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n<|im_start|>user\n"
            start = len(after)
            after += following
    else:
        start = len(after)
        after += question
    low, high = question_range(question) if span is None else span
    after += "<|im_end|>\n<|im_start|>assistant\n"
    return ChatPrompt(before, after, (start + low, start + high))


def question_range(text: str) -> tuple[int, int]:
    """Return the range of the question and its options, without instructions on the answer's format at either end."""
    low, high = 0, len(text)
    while match := _LEADING.match(text, low, high):
        low = match.end()
    while match := _TRAILING.search(text, low, high):
        high = match.start()
    question = text[low:high]
    if not question.strip():  # the text is nothing but instructions: they are the question
        low, high, question = 0, len(text), text
    return low + len(question) - len(question.lstrip()), high - (len(question) - len(question.rstrip()))


def chat_conversation(
    turns: Sequence[tuple[str, str]], duration: float, times: Sequence[float], system: str | None = None
) -> Conversation:
    """Return a whole conversation for training: each question and its answer, up to the end of the last answer.

    Text and layout equal those of `chat_prompt`, so that training and answering agree. An answer is supervised together
    with the token that ends its turn. `system` is the text of the system turn (None: `SYSTEM`).
    """
    if not turns:
        raise ValueError("a conversation needs at least one question and its answer")
    prompt = chat_prompt(turns[0][0], duration, times, system=system)
    segments = [Segment(prompt.after, False, prompt.question), Segment(turns[0][1] + TURN_END, True)]
    opening = "\n<|im_start|>user\n"
    for question, answer in turns[1:]:
        low, high = question_range(question)
        text = f"{opening}{question}{TURN_END}\n<|im_start|>assistant\n"
        segments.append(Segment(text, False, (len(opening) + low, len(opening) + high)))
        segments.append(Segment(answer + TURN_END, True))
    return Conversation(prompt.before, tuple(segments))


def check_turns(turns: Sequence[tuple[str, str]], special_tokens: Iterable[str]) -> None:
    """Refuse empty questions and answers, and those that hold a special token of the tokenizer."""
    for number, turn in enumerate(turns, 1):
        for role, text in zip(("question", "answer"), turn, strict=True):
            if not text.strip():
                raise ValueError(f"{role} {number} is empty")
            refuse_special_tokens(f"{role} {number}", text, special_tokens)


def refuse_special_tokens(name: str, text: str, special_tokens: Iterable[str]) -> None:
    """Refuse a text with a special token, which would be read as structure, such as the end of a turn."""
    found = next((token for token in special_tokens if token in text), None)
    if found is not None:
        raise ValueError(f"{name} holds {found}, which would be read as a special token and not as text; leave it out")
