"""The ActivityNet-QA protocol: a language model says whether a prediction means the answer, and how much, 0 to 5.

The words are those of the protocol as Video-ChatGPT published it, since figures compare only under the same ones.
"""

import ast
import json
import re
from dataclasses import dataclass

from aviot.values import as_number

SYSTEM = (
    "You are an intelligent chatbot designed for evaluating the correctness of generative outputs for question-answer "
    "pairs. Your task is to compare the predicted answer with the correct answer and determine if they match "
    "meaningfully. Here's how you can accomplish the task:------##INSTRUCTIONS: - Focus on the meaningful match "
    "between the predicted answer and the correct answer.\n- Consider synonyms or paraphrases as valid matches.\n"
    "- Evaluate the correctness of the prediction compared to the answer."
)
USER = (
    "Please evaluate the following video-based question-answer pair:\n\n"
    "Question: {question}\nCorrect Answer: {answer}\nPredicted Answer: {prediction}\n\n"
    "Provide your evaluation only as a yes/no and score where the score is an integer value between 0 and 5, with 5 "
    "indicating the highest meaningful match. Please generate the response in the form of a Python dictionary string "
    "with keys 'pred' and 'score', where value of 'pred' is a string of 'yes' or 'no' and value of 'score' is in "
    "INTEGER, not STRING. DO NOT PROVIDE ANY OTHER OUTPUT TEXT OR EXPLANATION. Only provide the Python dictionary "
    "string. For example, your response should look like this: {{'pred': 'yes', 'score': 4.8}}."
)
_OBJECT = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class Verdict:
    """What a judge said."""

    correct: bool
    score: float


def judge_messages(question: str, answer: str, prediction: str) -> list[dict[str, str]]:
    """The chat that asks for a verdict."""
    asked = USER.format(question=question, answer=answer, prediction=prediction)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]


def parse_verdict(reply: str) -> Verdict:
    """The one dictionary in a reply, as JSON or as Python writes it; ValueError where there is no clear verdict."""
    found = _OBJECT.findall(reply)
    if len(found) != 1:
        raise ValueError(f"expected one dictionary with pred and score, got {len(found)} in {reply[:120]!r}")
    try:
        said = json.loads(found[0])
    except ValueError:
        try:
            said = ast.literal_eval(found[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"expected a dictionary with pred and score, got {reply[:120]!r}") from None
    if not isinstance(said, dict):
        raise ValueError(f"expected a dictionary with pred and score, got {reply[:120]!r}")
    word = said.get("pred")
    if not isinstance(word, str) or word.strip().lower() not in ("yes", "no"):
        raise ValueError(f"pred must be yes or no, got {word!r:.80}")
    score = said.get("score")
    if isinstance(score, str) and re.fullmatch(r"\s*\d(?:\.\d+)?\s*", score):
        score = float(score)
    number = as_number(score)
    if number is None or not 0 <= number <= 5:
        raise ValueError(f"score must be a number from 0 to 5, got {said.get('score')!r:.80}")
    return Verdict(word.strip().lower() == "yes", number)
