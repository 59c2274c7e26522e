"""The conversation of a record, in any of the common training formats, as messages of three roles."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aviot.data.checks import RecordError, RepeatedKey, check_object, check_text, is_given, json_type, quoted

Role = Literal["system", "user", "assistant"]

PLACEHOLDERS = ("<image>", "<video>")
"""Marks of the video in a question; LLaVA's published files write the first even for videos."""

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
}
TOOL_ROLES = ("tool", "tool_call", "tool_response", "function", "function_call", "function_response", "observation")
TOOL_KEYS = ("tool_calls", "function_call")
WEIGHT_KEYS = ("weight", "loss", "loss_weight", "loss_scale")

_LISTS = ("conversations", "messages", "conversation")
_PAIRS = (("query", "response"), ("instruction", "output"))
_EXPECTED = (
    'expected "conversations" or "messages", a list of turns that begins with a question ({"from": "human", "value": '
    'text} or {"role": "user", "content": text}), "conversation", a list of {"human": text, "assistant": text}, '
    '"query" with "response", or "instruction" with "output"'
)

_PLACEHOLDER = re.compile("|".join(PLACEHOLDERS))
_FOREIGN_PLACEHOLDER = re.compile(  # of Qwen, Llama and Gemma; expanded prompts repeat them
    r"(?:<\|vision_(?:start|bos)\|>)?(?:<\|(?:video|image)(?:_pad)?\|>)+(?:<\|vision_(?:end|eos)\|>)?|"
    r"(?:<video_soft_token>)+|<video\s*/>|<(?:video|image)(?:here)?>",
    re.IGNORECASE,
)
_NAMED_VIDEO = re.compile(r"<(video|image)>([^<>\n]*)</\1>", re.IGNORECASE)
_VIDEO_TYPES = ("video", "video_url", "input_video")
_TEXT_TYPES = ("text", "input_text", "output_text")
_KIND_KEYS = ("video", "video_url", "image", "image_url", "text")  # the kind of a part without a type is its key
_CLIP_KEYS = ("video_start", "video_end")


@dataclass(frozen=True)
class Content:
    """The text of a turn with a placeholder at the place of a video, and the videos that its parts name."""

    text: str
    videos: tuple[Any, ...] = ()

    @property
    def placeholders(self) -> int:
        """Number of video placeholders."""
        return len(_PLACEHOLDER.findall(self.text))

    @property
    def words(self) -> str:
        """Text without placeholders and surrounding space."""
        return _PLACEHOLDER.sub("", self.text).strip()


@dataclass(frozen=True)
class Message:
    """One turn: its role, its content, and the name of its role as the record writes it."""

    number: int  # from 1, as in the record
    role: Role
    name: str
    content: Content


def read_messages(record: Mapping[str, Any]) -> list[Message]:
    """Return the turns of a record, system turns included, in order."""
    lists = [key for key in _LISTS if is_given(record.get(key))]
    if len(lists) > 1:
        raise RecordError(f'the record has both "{lists[0]}" and "{lists[1]}"; keep the one to train on')
    if lists:
        turns = record[lists[0]]
        if not isinstance(turns, list):
            raise RecordError(f'the record has no conversation; {_EXPECTED}; got {json_type(turns)} as "{lists[0]}"')
        turns = [each for turn in turns for each in _split_pair(turn)]
        return [_message(turn, number) for number, turn in enumerate(turns, 1)]
    for question, answer in _PAIRS:
        if is_given(record.get(question)) or is_given(record.get(answer)):
            return list(_paired_messages(record, question, answer))
    raise RecordError(f"the record has no conversation; {_EXPECTED}")


def _split_pair(turn: Any) -> list[Any]:
    """Return the question and the answer of {"human": text, "assistant": text} as two turns."""
    if not isinstance(turn, dict) or isinstance(turn, RepeatedKey) or {"from", "role"} & set(turn):
        return [turn]
    keys = [key for key in turn if key in ROLES]
    roles = [ROLES[key] for key in keys]
    return [{"role": key, "content": turn[key]} for key in keys] if roles == ["user", "assistant"] else [turn]


def _message(turn: Any, number: int) -> Message:
    check_object(turn, f"turn {number}")
    speaker_key = "from" if "from" in turn or "role" not in turn else "role"
    text_key = "value" if "value" in turn or ("content" not in turn and speaker_key == "from") else "content"
    speaker = turn.get(speaker_key)
    name = speaker.strip().lower() if isinstance(speaker, str) else ""
    tool = next((key for key in TOOL_KEYS if is_given(turn.get(key))), None)
    if name in TOOL_ROLES or tool is not None:
        got = f'"{speaker_key}": {quoted(speaker)}' if tool is None else f'"{tool}"'
        raise RecordError(
            f"turn {number} is a tool call ({got}); only questions and answers are supported: remove the tool turns "
            "or the record"
        )
    if name not in ROLES:
        got = repr(speaker[:40]) if isinstance(speaker, str) else type(speaker).__name__
        expected = '"human" or "gpt"' if speaker_key == "from" else '"user" or "assistant"'
        raise RecordError(f'turn {number} must be from {expected}, or "system", as its "{speaker_key}"; got {got}')
    _check_weight(turn, number, ROLES[name])
    return Message(number, ROLES[name], name, read_content(turn.get(text_key), text_key, number))


def _check_weight(turn: Mapping[str, Any], number: int, role: Role) -> None:
    """Raise RecordError if a turn's weight asks for other supervision than training applies."""
    for key in WEIGHT_KEYS:
        weight = turn.get(key)
        if weight is not None and weight != (role == "assistant"):
            raise RecordError(
                f'turn {number} has "{key}": {str(weight)[:40]}; weights of turns are not supported: every answer is '
                "supervised, and nothing else. Remove the key, or the turns that are not to be trained on"
            )


def _paired_messages(record: Mapping[str, Any], question_key: str, answer_key: str) -> Iterator[Message]:
    """Yield the turns of `history`, then the question and the answer that are keys of the record."""
    question, answer = record.get(question_key), record.get(answer_key)
    if question_key == "instruction" and is_given(record.get("input")):
        if not isinstance(record["input"], str):
            raise RecordError(f'"input" must be text, got {json_type(record["input"])}')
        question = f"{question}\n{record['input']}" if isinstance(question, str) and question else record["input"]
    pairs: list[Sequence[Any]] = [*_history(record.get("history")), (question, answer)]
    for number, pair in enumerate(pairs):
        last = number == len(pairs) - 1
        for offset, (role, key) in enumerate((("user", question_key), ("assistant", answer_key))):
            what = f'"{key}"' if last else f'pair {number + 1} of "history"'
            if not isinstance(pair[offset], str):
                raise RecordError(f"{what} must be text, got {json_type(pair[offset])}; the record needs both sides")
            yield Message(2 * number + offset + 1, ROLES[role], role, read_text(pair[offset], what))


def _history(history: Any) -> list[Sequence[Any]]:
    if not is_given(history):
        return []
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise RecordError('"history" must be a list of [question, answer] pairs')
    return history


def read_content(content: Any, key: str, turn: int) -> Content:
    """Return a turn's content: text, or a list of typed parts in the style of OpenAI and Qwen.

    Raises RecordError, naming the part, for a part that is neither text nor a video.
    """
    if isinstance(content, str):
        return read_text(content, f"turn {turn}")
    if not isinstance(content, list):
        raise RecordError(f'turn {turn} must have text as its "{key}", got {type(content).__name__}')
    texts: list[str] = []
    videos: list[Any] = []
    for number, part in enumerate(content, 1):
        what = f"part {number} of turn {turn}"
        if not isinstance(part, str):
            check_object(part, what)
        if isinstance(part, str) or _part_kind(part, what) == "text":
            parsed = read_text(part if isinstance(part, str) else _part_text(part, what), what)
            texts.append(parsed.text)
            videos += parsed.videos
        else:
            texts.append(PLACEHOLDERS[1])
            videos += _part_video(part, what)
    return Content("".join(texts), tuple(videos))


def read_text(text: str, what: str) -> Content:
    """Return a text's content: "<video>path</video>" names a video, and other tools' placeholders become ours."""
    videos = []
    for kind, path in _NAMED_VIDEO.findall(check_text(text, what)):
        if kind.lower() == "image" and path.strip():
            raise RecordError(f"{what} names an image ({path.strip()[:80]!r}); expected one video: remove the record")
        videos += [path.strip()] if path.strip() else []
    text = _NAMED_VIDEO.sub(PLACEHOLDERS[1], text)
    return Content(_FOREIGN_PLACEHOLDER.sub(_own_placeholder, text), tuple(videos))


def _own_placeholder(found: re.Match[str]) -> str:
    return found[0] if found[0] in PLACEHOLDERS else PLACEHOLDERS[1]


def _part_kind(part: Mapping[str, Any], what: str) -> str:
    """Return "text" or "video": the part's type, or, without one, the key it has."""
    kind = part.get("type")
    if kind is None:
        kind = next((name for name in _KIND_KEYS if is_given(part.get(name))), None)
    if kind in _TEXT_TYPES:
        return "text"
    if kind in _VIDEO_TYPES:
        return "video"
    got = repr(kind[:40]) if isinstance(kind, str) else json_type(kind)
    raise RecordError(
        f'{what} must be of "type" "text" or "video", got {got}; images, audio and tool results are not supported: '
        "remove the part or the record"
    )


def _part_text(part: Mapping[str, Any], what: str) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise RecordError(f'{what} must have text as its "text", got {json_type(text)}')
    return text


def _part_video(part: Mapping[str, Any], what: str) -> list[Any]:
    """Return the path that a video part names, if any: a bare {"type": "video"} marks the place of `videos`."""
    clip = next((key for key in _CLIP_KEYS if is_given(part.get(key))), None)
    if clip is not None:
        raise RecordError(f'{what} has "{clip}"; a video is trained on whole: cut the file and remove the key')
    found = next((part[key] for key in ("video", "video_url", "path", "url") if is_given(part.get(key))), None)
    if isinstance(found, Mapping):
        check_object(found, what)
        found = found.get("url", found.get("path", found))
    return [] if found is None else [found]
