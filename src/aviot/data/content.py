"""What one turn says: text, or a list of typed parts (OpenAI's and Qwen's style)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aviot.data.errors import RecordError
from aviot.data.json_values import check_object, check_text, is_given, json_name

PLACEHOLDERS = ("<image>", "<video>")
"""What marks the video in a question; LLaVA's published files write the first even for videos."""

_PLACEHOLDER = re.compile("|".join(PLACEHOLDERS))
_VIDEO_TYPES = ("video", "video_url", "input_video")
_TEXT_TYPES = ("text", "input_text", "output_text")
_UNTYPED = ("video", "video_url", "image", "image_url", "text")  # keys that say what a part without a type is
_CUTS = ("video_start", "video_end")


@dataclass(frozen=True)
class Content:
    """The text of a turn with a placeholder where a video stands, and the videos that its parts name."""

    text: str
    videos: tuple[Any, ...] = ()

    @property
    def placeholders(self) -> int:
        """The number of places at which a video is shown."""
        return len(_PLACEHOLDER.findall(self.text))

    @property
    def words(self) -> str:
        """The text without placeholders and surrounding space."""
        return _PLACEHOLDER.sub("", self.text).strip()


def read_content(content: Any, key: str, turn: int) -> Content:
    """Return what a turn says; RecordError, naming the part, for what is neither text nor a video."""
    if isinstance(content, str):
        return Content(check_text(content, f"turn {turn}"))
    if not isinstance(content, list):
        raise RecordError(f'turn {turn} must have text as its "{key}", got {type(content).__name__}')
    texts: list[str] = []
    videos: list[Any] = []
    for number, part in enumerate(content, 1):
        what = f"part {number} of turn {turn}"
        if isinstance(part, str):
            texts.append(check_text(part, what))
            continue
        check_object(part, what)
        if _kind(part, what) == "text":
            texts.append(_text(part, what))
        else:
            texts.append(PLACEHOLDERS[1])
            videos += _named_video(part, what)
    return Content("".join(texts), tuple(videos))


def _kind(part: Mapping[str, Any], what: str) -> str:
    """Return "text" or "video": what the part says it is, or, without a type, the key it has."""
    kind = part.get("type")
    if kind is None:
        kind = next((name for name in _UNTYPED if is_given(part.get(name))), None)
    if kind in _TEXT_TYPES:
        return "text"
    if kind in _VIDEO_TYPES:
        return "video"
    got = repr(kind[:40]) if isinstance(kind, str) else json_name(kind)
    raise RecordError(
        f'{what} must be of "type" "text" or "video", got {got}; images, audio and tool results are not supported: '
        "remove the part or the record"
    )


def _text(part: Mapping[str, Any], what: str) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise RecordError(f'{what} must have text as its "text", got {json_name(text)}')
    return check_text(text, what)


def _named_video(part: Mapping[str, Any], what: str) -> list[Any]:
    """Return the path that a video part names, if any: a bare {"type": "video"} marks the place of `videos`."""
    cut = next((key for key in _CUTS if is_given(part.get(key))), None)
    if cut is not None:
        raise RecordError(f'{what} has "{cut}"; a video is trained on whole: cut the file and remove the key')
    found = next((part[key] for key in ("video", "video_url", "path", "url") if is_given(part.get(key))), None)
    if isinstance(found, Mapping):
        check_object(found, what)
        found = found.get("url", found.get("path", found))
    return [] if found is None else [found]
