"""What a request of the harness asks, as an item; nothing here needs the harness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aviot.evaluation.item import Asked, Item
from aviot.evaluation.span import span_in
from aviot.request import MAX_NEW_TOKENS

FILLED_IN = "\n\n"
"""The stop that the harness adds to tasks that name none; it would cut answers that reason first."""

MISTAKEN = (".webm", ".gif")
"""Videos that the harness takes for sound or for a picture by their ending."""

_GREEDY: dict[str, tuple[Any, ...]] = {"do_sample": (None, False), "temperature": (None, 0), "num_beams": (None, 1)}


@dataclass(frozen=True)
class Decoding:
    """How long an answer may be, and what ends it."""

    max_new_tokens: int
    stops: tuple[str, ...]

    def cut(self, reply: str) -> str:
        """A reply up to the first stop."""
        for stop in self.stops:
            reply = reply.split(stop)[0]
        return reply.strip()


def read_decoding(told: Mapping[str, Any]) -> Decoding:
    """A task's generation settings; ValueError for those that are not greedy."""
    for name, allowed in _GREEDY.items():
        if told.get(name) not in allowed:
            raise ValueError(
                f"the task asks for {name}={told[name]!r}, and aviot decodes greedily; say --gen_kwargs "
                "temperature=0,do_sample=False,num_beams=1, or choose another task"
            )
    until = told.get("until") or ()
    stops = tuple(stop for stop in ([until] if isinstance(until, str) else until) if stop and stop != FILLED_IN)
    return Decoding(int(told.get("max_new_tokens") or MAX_NEW_TOKENS), stops)


def read_request(messages: Sequence[Mapping[str, Any]], record: Mapping[str, Any], name: str) -> Item:
    """The one video and the text of a user turn; ValueError for chats of another shape."""
    roles = [message["role"] for message in messages]
    if roles != ["user"]:
        raise ValueError(f"{name}: expected one user turn, got {roles}; aviot answers single turns")
    content = messages[0]["content"]
    texts = [part["text"] for part in content if part["type"] == "text"]
    media = [part for part in content if part["type"] != "text"]
    if len(media) != 1 or not _is_video(media[0]):
        told = [part["type"] for part in media] or "nothing"
        raise ValueError(f"{name}: expected the path of one video, got {told}; aviot answers questions about one video")
    text = "\n".join(texts)
    asked = Asked(text, span_in(text, record))
    return Item(id=name, video=media[0]["url"], question=text, options=(), right=None, answers=(), asked=asked)


def _is_video(part: Mapping[str, Any]) -> bool:
    path = part["url"]
    return isinstance(path, str) and (part["type"] == "video" or path.lower().endswith(MISTAKEN))
