"""The chat prompt: layout, time line, and where in it the question stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

PLACEHOLDER = "<image>"
SYSTEM = "You are a helpful assistant."

# Sentences that say how to answer, not what is asked: those of the ten benchmarks the paper evaluates, as their harness
# words them. Matched at either end of a question, case and spacing aside.
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
    """A prompt around one video: the text before and after the placeholder, and the question's range in the latter."""

    before: str
    after: str
    question: tuple[int, int]  # characters of `after`

    @property
    def text(self) -> str:
        """The whole prompt as text."""
        return self.before + PLACEHOLDER + self.after


def time_line(duration: float, times: Sequence[float]) -> str:
    """The sentence that tells the model the video's length and where its frames were taken."""
    places = ",".join(f"{time:.2f}s" for time in times)
    return (
        f"The video lasts for {duration:.2f} seconds, and {len(times)} frames are uniformly sampled from it. "
        f"These frames are located at {places}.Please answer the following questions related to this video."
    )


def chat_prompt(
    question: str,
    duration: float,
    times: Sequence[float],
    history: Sequence[tuple[str, str]] = (),
    span: tuple[int, int] | None = None,
    system: str | None = None,
) -> ChatPrompt:
    """ChatML: system turn, then the video with its time line and the first question, earlier answers, the question.

    `system` is the text of the system turn (None: `SYSTEM`).
    The question's range is that of the last question without its answer-format instructions: `span` of its characters,
    or what its wording tells.
    """
    first = history[0][0] if history else question
    before = f"<|im_start|>system\n{SYSTEM if system is None else system}<|im_end|>\n<|im_start|>user\n"
    after = f"\n{time_line(duration, times)}\n"
    if history:
        after += first
        for (_, answer), asked in zip(history, [*(turn[0] for turn in history[1:]), question], strict=True):
            after += f"<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n<|im_start|>user\n"
            start = len(after)
            after += asked
    else:
        start = len(after)
        after += question
    low, high = question_range(question) if span is None else span
    after += "<|im_end|>\n<|im_start|>assistant\n"
    return ChatPrompt(before, after, (start + low, start + high))


def question_range(text: str) -> tuple[int, int]:
    """The characters that ask: the question and its options, without instructions on how to answer at either end."""
    low, high = 0, len(text)
    while match := _LEADING.match(text, low, high):
        low = match.end()
    while match := _TRAILING.search(text, low, high):
        high = match.start()
    asked = text[low:high]
    if not asked.strip():  # nothing but instructions: then they are the question
        low, high, asked = 0, len(text), text
    return low + len(asked) - len(asked.lstrip()), high - (len(asked) - len(asked.rstrip()))
