"""One training record: a video and a conversation about it, in any of the common formats."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aviot.data.checks import ANY_FOLDER, RecordError, VideoFolder, check_object, check_text, is_given, json_type
from aviot.data.conversation import PLACEHOLDERS, Message, read_messages
from aviot.utils.values import as_number

__all__ = ["PLACEHOLDERS", "Record", "Turn", "parse_record"]

Turn = tuple[str, str]
"""A question and its answer."""

UNSUPPORTED = {
    "image": "an image",
    "images": "images",
    "audios": "audio",
    "objects": "boxes of objects",
    "tools": "tools",
    "chosen": "a preferred answer",
    "rejected": "a rejected answer",
    "rejected_response": "a rejected answer",
    "rejected_messages": "a rejected answer",
    "video_start": "a part of its video",
    "video_end": "a part of its video",
}
"""Keys of the common formats that are not supported; ignoring them would change what is trained on."""

_PREFERENCE_KEYS = ("label", "kto_tag")  # false: the answer is one to avoid (KTO)
_EMPTY_TEXTS = ("[]", "{}", "null")  # empty columns of tools that store them as JSON text

_DURATION_RANGE = re.compile(r"(?:^|[^0-9])(\d{1,4})_(\d{1,4})_([sm])(?:_|$)")
"""Range of seconds or minutes in the name of a source, such as 0_30_s_academic_v0_1 or 1_2_m_youtube_v0_1."""


@dataclass(frozen=True)
class Record:
    """A checked record; its turns have no placeholder, since the video always precedes the first question."""

    id: str
    video: str
    turns: tuple[Turn, ...]
    data_source: str
    seconds: float | None  # duration of the video, None if the record does not tell
    system: str | None = None  # None: the default of the chat prompt

    @property
    def characters(self) -> int:
        """Length of the conversation in characters."""
        return len(self.system or "") + sum(len(question) + len(answer) for question, answer in self.turns)


def parse_record(value: Any, default_id: str, videos: VideoFolder = ANY_FOLDER) -> Record:
    """Return the record of a JSON value; RecordError, with what was expected, what came and a remedy, otherwise."""
    check_object(value, "a record")
    name = default_id if value.get("id") is None else value["id"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise RecordError(f"id must be text or a whole number, got {type(name).__name__}")
    source = "" if value.get("data_source") is None else value["data_source"]
    if not isinstance(source, str):
        raise RecordError(f"data_source must be text, got {type(source).__name__}")
    messages = read_messages(value)
    video = _video(value, messages)
    _refuse_unsupported(value)
    system, dialogue = _split_system(value, messages)
    return Record(
        id=check_text(str(name), "id"),
        video=check_text(videos.check(video), "video"),
        turns=_turns(dialogue),
        data_source=check_text(source, "data_source"),
        seconds=_seconds(value, source),
        system=system,
    )


def _key_videos(value: Mapping[str, Any]) -> list[Any]:
    """Return the videos that the keys "video" and "videos" name."""
    found = [] if value.get("video") is None else [value["video"]]
    several = value.get("videos")
    if isinstance(several, str) and several.strip().startswith("["):
        raise RecordError(f'"videos" must be a list of one path, got text that holds a list: {several[:80]!r}')
    if is_given(several):
        found += several if isinstance(several, list) else [several]
    return [video["path"] if isinstance(video, dict) and video.get("path") else video for video in found]


def _video(value: Mapping[str, Any], messages: list[Message]) -> Any:
    """Return the one video of a record, which may be named both by key and by part."""
    found = [*_key_videos(value), *(video for message in messages for video in message.content.videos)]
    if not found:
        raise RecordError(_no_video(value))
    different = [video for number, video in enumerate(found) if video not in found[:number]]
    if len(different) > 1 or len(value["videos"] if isinstance(value.get("videos"), list) else ()) > 1:
        raise RecordError(
            f'the record names {len(found)} videos ("video", "videos" or parts of turns); a record has one: join them '
            "into one file, or make a record of each"
        )
    return different[0]


def _no_video(value: Mapping[str, Any]) -> str:
    kind = "an image record" if is_given(value.get("image")) or is_given(value.get("images")) else "a text-only record"
    return (
        'the record names no video; expected "video": path, "videos": [path], or a part {"type": "video", "video": '
        f"path}} of the first question; {kind} has nothing to compress, leave it out with bad_records: skip"
    )


def _refuse_unsupported(value: Mapping[str, Any]) -> None:
    rejected = next((key for key in _PREFERENCE_KEYS if value.get(key) is False), None)
    if rejected is not None:
        raise RecordError(
            f'the record has "{rejected}": false, so its answer is one to avoid, and training would teach it: leave '
            "the record out with bad_records: skip"
        )
    given = {key: value.get(key) for key in UNSUPPORTED}
    given = {key: each for key, each in given.items() if not (isinstance(each, str) and each.strip() in _EMPTY_TEXTS)}
    key = next((key for key, each in given.items() if is_given(each)), None)
    if key is not None:
        raise RecordError(
            f'the record has {UNSUPPORTED[key]} ("{key}"); expected one video, its questions and their answers: remove '
            "the key, or leave the record out with bad_records: skip"
        )


def _split_system(value: Mapping[str, Any], messages: list[Message]) -> tuple[str | None, list[Message]]:
    """Return the system text, given by key or first turn, and the messages after it."""
    given = value.get("system")
    if given is not None and not isinstance(given, str):
        raise RecordError(f'"system" must be text, got {json_type(given)}')
    text = check_text(given or "", "system").strip()
    if messages and messages[0].role == "system":
        first, messages = messages[0], messages[1:]
        if first.content.placeholders:
            raise RecordError("turn 1, the system's, has the placeholder; it belongs in the first question")
        turn_text = first.content.words
        if text and turn_text and text != turn_text:
            raise RecordError('the record has both "system" and a system turn, and they differ; keep one of them')
        text = text or turn_text
        if not messages:
            raise RecordError(f'turn 1 must be from "human" or be followed by a turn that is; got {first.name!r} alone')
    if any(mark in text for mark in PLACEHOLDERS):
        raise RecordError('"system" has the placeholder; it belongs in the first question')
    return text or None, messages


def _turns(messages: list[Message]) -> tuple[Turn, ...]:
    """Return question-answer pairs; RecordError unless the turns alternate and mark the video at most once."""
    for position, message in enumerate(messages):
        _check_role(message, position)
    if len(messages) % 2:
        raise RecordError(f"turn {messages[-1].number} is a question without an answer; each question needs one")
    _check_placeholders(messages)
    for message in messages:
        if not message.content.words:
            kind = "a question" if message.role == "user" else "an answer"
            raise RecordError(f"turn {message.number}, {kind}, is empty; give it text or take the record out")
    words = [message.content.words for message in messages]
    return tuple(zip(words[::2], words[1::2], strict=True))


def _check_role(message: Message, position: int) -> None:
    expected = "assistant" if position % 2 else "user"
    if message.role == expected:
        return
    if position == 0 and message.role == "assistant":
        raise RecordError('the conversation begins with an answer; its first turn must be from "human" or "user"')
    names = {"user": '"human" or "user"', "assistant": '"gpt" or "assistant"'}
    order = "the system turn comes first" if message.role == "system" else "questions and answers alternate"
    raise RecordError(f"turn {message.number} must be from {names[expected]}: {order}; got {message.name!r}")


def _check_placeholders(messages: list[Message]) -> None:
    """Raise RecordError for more than one placeholder, and for one outside the first question."""
    counts = [message.content.placeholders for message in messages]
    if counts[0] == 2 and messages[0].content.videos:  # a part that names the video, and its placeholder in the text
        counts[0] = 1
    if sum(counts) > 1:
        raise RecordError(
            f"the conversation has {sum(counts)} placeholders ({' or '.join(PLACEHOLDERS)}); it must have one, "
            "in its first question"
        )
    if sum(counts) and not counts[0]:
        number = messages[counts.index(1)].number
        raise RecordError(f"turn {number} has the placeholder; it belongs in the first question")


def _seconds(value: Mapping[str, Any], source: str) -> float | None:
    """Return the record's duration, or the middle of the range in the name of its source."""
    if value.get("duration") is not None:
        seconds = as_number(value["duration"])
        if seconds is None or seconds < 0:
            raise RecordError("duration must be the video's length in seconds, a number of at least 0")
        return seconds
    if match := _DURATION_RANGE.search(source):
        low, high, unit = match.groups()
        return (int(low) + int(high)) / 2 * (60 if unit == "m" else 1)
    return None
