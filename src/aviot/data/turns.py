"""The conversation of a record, in any of the common training formats, as messages of three roles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aviot.data.content import Content, read_content, read_text
from aviot.data.errors import RecordError
from aviot.data.json_values import RepeatedKey, check_object, is_given, json_name, quoted

Role = Literal["system", "user", "assistant"]

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


@dataclass(frozen=True)
class Message:
    """One turn: who speaks, what is said, and the name of its role as this record writes it."""

    number: int  # from 1, as in the record
    role: Role
    name: str
    content: Content


def read_messages(record: Mapping[str, Any]) -> list[Message]:
    """Return the turns of a record, system turns included, in the order in which they are said."""
    lists = [key for key in _LISTS if is_given(record.get(key))]
    if len(lists) > 1:
        raise RecordError(f'the record has both "{lists[0]}" and "{lists[1]}"; keep the one to train on')
    if lists:
        turns = record[lists[0]]
        if not isinstance(turns, list):
            raise RecordError(f'the record has no conversation; {_EXPECTED}; got {json_name(turns)} as "{lists[0]}"')
        turns = [each for turn in turns for each in _sides(turn)]
        return [_message(turn, number) for number, turn in enumerate(turns, 1)]
    for question, answer in _PAIRS:
        if is_given(record.get(question)) or is_given(record.get(answer)):
            return list(_pairs(record, question, answer))
    raise RecordError(f"the record has no conversation; {_EXPECTED}")


def _sides(turn: Any) -> list[Any]:
    """Return the question and the answer of {"human": text, "assistant": text} as turns of their own."""
    if not isinstance(turn, dict) or isinstance(turn, RepeatedKey) or {"from", "role"} & set(turn):
        return [turn]
    sides = [key for key in turn if key in ROLES]
    roles = [ROLES[key] for key in sides]
    return [{"role": key, "content": turn[key]} for key in sides] if roles == ["user", "assistant"] else [turn]


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
            f"turn {number} is a tool call ({got}); questions and answers alone are supported: remove the tool turns "
            "or the record"
        )
    if name not in ROLES:
        got = repr(speaker[:40]) if isinstance(speaker, str) else type(speaker).__name__
        expected = '"human" or "gpt"' if speaker_key == "from" else '"user" or "assistant"'
        raise RecordError(f'turn {number} must be from {expected}, or "system", as its "{speaker_key}"; got {got}')
    _check_weight(turn, number, ROLES[name])
    return Message(number, ROLES[name], name, read_content(turn.get(text_key), text_key, number))


def _check_weight(turn: Mapping[str, Any], number: int, role: Role) -> None:
    """Refuse a turn that asks to be supervised in another way than training does."""
    for key in WEIGHT_KEYS:
        weight = turn.get(key)
        if weight is not None and weight != (role == "assistant"):
            raise RecordError(
                f'turn {number} has "{key}": {str(weight)[:40]}; weights of turns are not supported: every answer is '
                "supervised, and nothing else. Remove the key, or the turns that are not to be trained on"
            )


def _pairs(record: Mapping[str, Any], question: str, answer: str) -> Iterator[Message]:
    """Yield the turns of `history`, then the question and the answer that are keys of the record."""
    asked, said = record.get(question), record.get(answer)
    if question == "instruction" and is_given(record.get("input")):
        if not isinstance(record["input"], str):
            raise RecordError(f'"input" must be text, got {json_name(record["input"])}')
        asked = f"{asked}\n{record['input']}" if isinstance(asked, str) and asked else record["input"]
    pairs: list[Sequence[Any]] = [*_history(record.get("history")), (asked, said)]
    for number, pair in enumerate(pairs):
        last = number == len(pairs) - 1
        for offset, (role, name) in enumerate((("user", question), ("assistant", answer))):
            what = f'"{name}"' if last else f'pair {number + 1} of "history"'
            if not isinstance(pair[offset], str):
                raise RecordError(f"{what} must be text, got {json_name(pair[offset])}; the record needs both sides")
            yield Message(2 * number + offset + 1, ROLES[role], role, read_text(pair[offset], what))


def _history(history: Any) -> list[Sequence[Any]]:
    if not is_given(history):
        return []
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise RecordError('"history" must be a list of [question, answer] pairs')
    return history
