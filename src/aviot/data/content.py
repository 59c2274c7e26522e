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
_OTHERS_PLACEHOLDER = re.compile(  # Qwen's, Llama's, Gemma's; those of a prompt that is laid out already come in a row
    r"(?:<\|vision_(?:start|bos)\|>)?(?:<\|(?:video|image)(?:_pad)?\|>)+(?:<\|vision_(?:end|eos)\|>)?|"
    r"(?:<video_soft_token>)+|<video\s*/>|<(?:video|image)(?:here)?>",
    re.IGNORECASE,
)
_NAMING = re.compile(r"<(video|image)>([^<>\n]*)</\1>", re.IGNORECASE)
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
        return read_text(content, f"turn {turn}")
    if not isinstance(content, list):
        raise RecordError(f'turn {turn} must have text as its "{key}", got {type(content).__name__}')
    texts: list[str] = []
    videos: list[Any] = []
    for number, part in enumerate(content, 1):
        what = f"part {number} of turn {turn}"
        if not isinstance(part, str):
            check_object(part, what)
        if isinstance(part, str) or _kind(part, what) == "text":
            said = read_text(part if isinstance(part, str) else _text(part, what), what)
            texts.append(said.text)
            videos += said.videos
        else:
            texts.append(PLACEHOLDERS[1])
            videos += _named_video(part, what)
    return Content("".join(texts), tuple(videos))


def read_text(text: str, what: str) -> Content:
    """Return what a text says: "<video>path</video>" names a video, and other tools' placeholders stand for ours."""
    videos = []
    for kind, path in _NAMING.findall(check_text(text, what)):
        if kind.lower() == "image" and path.strip():
            raise RecordError(f"{what} names an image ({path.strip()[:80]!r}); expected one video: remove the record")
        videos += [path.strip()] if path.strip() else []
    return Content(_OTHERS_PLACEHOLDER.sub(_as_ours, _NAMING.sub(PLACEHOLDERS[1], text)), tuple(videos))


def _as_ours(found: re.Match[str]) -> str:
    return found[0] if found[0] in PLACEHOLDERS else PLACEHOLDERS[1]


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
    return text


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
