"""Messages of a request: the video that they show, the earlier turns, and the question."""

from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from pydantic import BaseModel

from aviot.request import check_question
from aviot.serve.media import frames_address
from aviot.web.refusal import Refused

QUESTION_CHARACTERS = 100_000  # of all questions and answers of a conversation
SHOWN = 80  # characters of a wrong value in an error

T = TypeVar("T")


class MediaUrl(BaseModel):
    """The address of a video, or of one of its frames."""

    url: str


class Part(BaseModel):
    """A part of a message: text, a video, or one of the frames of a video."""

    type: str
    text: str | None = None
    video_url: MediaUrl | str | None = None
    image_url: MediaUrl | str | None = None


class Message(BaseModel):
    """A message of a conversation."""

    role: str
    content: str | list[Part] | None = None


def refused(
    sentence: str, field_name: str | None, *, code: str | None = None, status: HTTPStatus = HTTPStatus.BAD_REQUEST
) -> Refused:
    """Return the refusal of a request, with the field that is to blame."""
    return Refused(status, sentence, code=code, field=field_name)


def with_field(check: Callable[[], T], field_name: str) -> T:
    """Call a function; refuse the request with its ValueError's message."""
    try:
        return check()
    except ValueError as error:
        raise refused(str(error), field_name) from None


def conversation(messages: Sequence[Message]) -> tuple[str, tuple[tuple[str, str], ...], str]:
    """Return the address of the video, earlier questions with their answers, and the question."""
    if not messages:
        raise refused("messages is empty; send one user message with a video_url part and a text part", "messages")
    videos: dict[str, None] = {}
    turns: list[str] = []
    for number, message in enumerate(messages):
        where, expected = f"messages.{number}", ("user", "assistant")[number % 2]
        if message.role in ("system", "developer", "tool", "function"):
            sentence = f"{message.role} messages are not supported; put instructions into the user's text"
            raise refused(sentence, f"{where}.role")
        if message.role != expected:
            sentence = f"user and assistant messages must alternate, beginning with the user's; expected {expected}"
            raise refused(f"{sentence}, got {message.role[:SHOWN]!r}", f"{where}.role")
        found, text = _content(message, where)
        videos |= dict.fromkeys(found)
        if found and number and len(videos) == len(dict.fromkeys(found)):
            raise refused("the video must be in the first user message", f"{where}.content")
        turns.append(text)
    if len(turns) % 2 == 0:
        raise refused("the last message must be the user's question", "messages")
    if len(videos) != 1:
        got = "no video_url part was sent" if not videos else f"got {len(videos)} videos"
        raise refused(f"ask about one video at a time: {got}", "messages", code="one_video_expected")
    if sum(map(len, turns)) > QUESTION_CHARACTERS:
        raise refused(f"the conversation has more than {QUESTION_CHARACTERS:,} characters; shorten it", "messages")
    for number in range(0, len(turns), 2):
        with_field(partial(check_question, turns[number]), f"messages.{number}.content")
    return next(iter(videos)), tuple(zip(turns[:-1:2], turns[1::2], strict=True)), turns[-1]


def _content(message: Message, where: str) -> tuple[list[str], str]:
    """Return the addresses of a message's videos, and its text; pictures that follow each other are one video."""
    if message.content is None or isinstance(message.content, str):
        return [], message.content or ""
    videos: list[str] = []
    texts: list[str] = []
    pictures: list[str] = []
    before = ""  # the type of the previous part
    for number, part in enumerate(message.content):
        place = f"{where}.content.{number}"
        is_asked = message.role == "user"
        if part.type == "text" and part.text is not None:
            texts.append(part.text)
        elif part.type == "video_url" and part.video_url is not None and is_asked:
            videos.append(_url(part.video_url))
        elif part.type == "image_url" and part.image_url is not None and is_asked:
            if pictures and before != "image_url":
                sentence = "the frames of a video must follow each other; put text before the first or after the last"
                raise refused(sentence, place)
            pictures.append(_url(part.image_url))
        elif part.type in ("image_url", "input_image", "image"):
            raise _image(place)
        else:
            raise refused(f"expected a text or video_url part with its content, got {part.type[:SHOWN]!r}", place)
        before = part.type
    if len(pictures) == 1:
        raise _image(f"{where}.content")
    if pictures:
        videos.append(frames_address(pictures, f"{where}.content"))
    return videos, "\n".join(texts)


def _url(given: MediaUrl | str) -> str:
    return given if isinstance(given, str) else given.url


def _image(place: str) -> Refused:
    sentence = (
        "this server answers questions about videos; send a video_url part instead of an image, or at least two frames "
        "of a video as image_url parts"
    )
    return refused(sentence, place, code="image_not_supported")
