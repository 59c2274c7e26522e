"""One record of LLaVA-Video-178K: a video and a conversation about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aviot.data.errors import RecordError
from aviot.data.paths import check_video_name
from aviot.values import as_number

PLACEHOLDERS = ("<image>", "<video>")
"""What marks the video in a question; the published files write the first even for videos."""

QUESTION, ANSWER = "human", "gpt"

Turn = tuple[str, str]
"""A question and its answer."""

_PLACEHOLDER = re.compile("|".join(PLACEHOLDERS))
_BUCKET = re.compile(r"(?:^|[^0-9])(\d{1,4})_(\d{1,4})_([sm])(?:_|$)")  # 0_30_s_academic_v0_1, 1_2_m_youtube_v0_1


@dataclass(frozen=True)
class Record:
    """A checked record; its turns carry no placeholder, since the video always stands before the first question."""

    id: str
    video: str
    turns: tuple[Turn, ...]
    data_source: str
    seconds: float | None  # the video's length as far as the record tells

    @property
    def characters(self) -> int:
        """Length of the conversation."""
        return sum(len(question) + len(answer) for question, answer in self.turns)


class RepeatedKey(dict[str, Any]):
    """A JSON object that says the same key twice, and which."""

    def __init__(self, pairs: list[tuple[str, Any]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def parse_record(value: Any, default_id: str) -> Record:
    """Check what JSON held, and say exactly what is wrong with it."""
    _check_object(value, "a record")
    if "video" not in value:
        kind = "an image record" if "image" in value else "a text-only record"
        raise RecordError(f"the record names no video; {kind} has nothing to compress, take it out of the training set")
    name = value.get("id", default_id)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise RecordError(f"id must be text or a whole number, got {type(name).__name__}")
    source = value.get("data_source", "")
    if not isinstance(source, str):
        raise RecordError(f"data_source must be text, got {type(source).__name__}")
    return Record(
        id=_checked_text(str(name), "id"),
        video=_checked_text(check_video_name(value["video"]), "video"),
        turns=_turns(value.get("conversations")),
        data_source=_checked_text(source, "data_source"),
        seconds=_seconds(value, source),
    )


def _turns(conversation: Any) -> tuple[Turn, ...]:
    if not isinstance(conversation, list) or not conversation:
        raise RecordError(
            'the record has no conversation; "conversations" must be a list of '
            '{"from": "human" or "gpt", "value": text}, beginning with a question'
        )
    said = [_said(turn, number) for number, turn in enumerate(conversation)]
    if len(said) % 2:
        raise RecordError(f"turn {len(said)} is a question without an answer; each question needs one")
    _check_placeholders(said)
    said[0] = _without_placeholder(said[0])
    for number, text in enumerate(said, 1):
        if not text.strip():
            kind = "a question" if number % 2 else "an answer"
            raise RecordError(f"turn {number}, {kind}, is empty; give it text or take the record out")
    return tuple((said[i].strip(), said[i + 1].strip()) for i in range(0, len(said), 2))


def _said(turn: Any, number: int) -> str:
    """The text of a turn, which must be the one whose turn it is."""
    _check_object(turn, f"turn {number + 1}")
    speaker, text = turn.get("from"), turn.get("value")
    expected = ANSWER if number % 2 else QUESTION
    if speaker != expected:
        if number == 0 and speaker == ANSWER:
            raise RecordError('the conversation begins with an answer; its first turn must be from "human"')
        got = repr(speaker[:40]) if isinstance(speaker, str) else type(speaker).__name__
        raise RecordError(f'turn {number + 1} must be from "{expected}": questions and answers alternate; got {got}')
    if not isinstance(text, str):
        raise RecordError(f'turn {number + 1} must have text as its "value", got {type(text).__name__}')
    return _checked_text(text, f"turn {number + 1}")


def _check_placeholders(said: list[str]) -> None:
    """None, or one in the first question: a conversation is about one video, which the decoder reads first."""
    counts = [len(_PLACEHOLDER.findall(text)) for text in said]
    if sum(counts) > 1:
        raise RecordError(
            f"the conversation has {sum(counts)} placeholders ({' or '.join(PLACEHOLDERS)}); it must have one, "
            "in its first question"
        )
    if sum(counts) and not counts[0]:
        raise RecordError(f"turn {counts.index(1) + 1} has the placeholder; it belongs in the first question")


def _without_placeholder(text: str) -> str:
    return _PLACEHOLDER.sub("", text, count=1)


def _seconds(value: Mapping[str, Any], source: str) -> float | None:
    """The record's duration, or the middle of the bucket that its source is named after."""
    if value.get("duration") is not None:
        seconds = as_number(value["duration"])
        if seconds is None or seconds < 0:
            raise RecordError("duration must be the video's length in seconds, a number of at least 0")
        return seconds
    if match := _BUCKET.search(source):
        low, high, unit = match.groups()
        return (int(low) + int(high)) / 2 * (60 if unit == "m" else 1)
    return None


def _check_object(value: Any, what: str) -> None:
    if not isinstance(value, dict):
        raise RecordError(f"{what} must be a JSON object, got {_json_name(value)}")
    if isinstance(value, RepeatedKey):
        raise RecordError(f"{what} has the key {value.key[:80]!r} twice; it is unclear which is meant")


def _checked_text(text: str, what: str) -> str:
    """Half of a surrogate pair is legal in JSON and no text anywhere else."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RecordError(f"{what} holds half a character (a lone surrogate, such as \\ud800)") from None
    return text


def _json_name(value: Any) -> str:
    names = {list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
