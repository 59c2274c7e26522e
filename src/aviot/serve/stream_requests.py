"""Requests about streams: to open one, and frames for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aviot.serve.chat import invalid_request
from aviot.serve.media import Library, Media
from aviot.streaming.intake import QUEUE_FRAMES
from aviot.utils.values import as_number
from aviot.web.refusal import Refused

JSON_TYPE, PICTURES = "application/json", ("image/jpeg", "image/png", "image/webp")
MOST_FRAMES = QUEUE_FRAMES  # of one request: more would only push each other out of the queue


class StreamRequest(BaseModel):
    """A new stream. By default its memory holds as many frames as the model samples from a video."""

    model_config = ConfigDict(extra="forbid")

    fps: float | None = Field(default=None, description="Frames to keep per second. Default: the model's.")
    memory_tokens: int | None = Field(default=None, description="Size of the memory in decoder tokens.")
    memory_bytes: int | None = Field(default=None, description="Size of the memory in bytes instead.")
    recent_frames: int | None = Field(default=None, description="Latest frames that are kept whole.")


class FramesRequest(BaseModel):
    """Frames of a stream, the earliest first, with their times in seconds. Default times: those of arrival."""

    model_config = ConfigDict(extra="forbid")

    frames: str = Field(description="data:video/jpeg;base64,FRAME,FRAME,...")
    times: list[float] | None = None
    wait: bool = Field(default=False, description="Answer once the frames are in the memory.")


@dataclass(frozen=True)
class Pushed:
    """Frames of a request: pictures, or a piece of video that begins at `start` (default: where the last one ended).

    With `wait`, the request is answered once they are in the memory.
    """

    media: Media
    times: tuple[float, ...] | None = None
    start: float | None = None
    wait: bool = False


def parse_open(body: bytes) -> StreamRequest:
    """Return what a request to open a stream asks for; an empty body asks for nothing."""
    try:
        return StreamRequest.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise invalid_request(error) from None


def parse_frames(body: bytes, kind: str, query: Mapping[str, str], library: Library) -> Pushed:
    """Return the frames of a request; raise Refused for a body or a query that has none."""
    unknown = set(query) - {"time", "wait"}
    if unknown:
        raise _refused(f"expected time and wait in the address, got {sorted(unknown)[0][:40]!r}", "wrong_query")
    start, wait = _seconds(query.get("time")), query.get("wait", "false").lower() == "true"
    if kind == JSON_TYPE:
        try:
            asked = FramesRequest.model_validate_json(body)
        except ValidationError as error:
            raise invalid_request(error) from None
        media = library.find(asked.frames)
        count = len(media.frames)
        check_count(count)
        if asked.times is None and count > 1:
            raise _refused(f"give the times of the {count} frames, in seconds", "wrong_times")
        times = None if asked.times is None else tuple(asked.times)
        return Pushed(media, times, start, asked.wait or wait)
    if not body:
        raise _refused("the request has no body; send a picture, or a piece of video", "no_frames")
    if kind in PICTURES:
        return Pushed(Media("", "the picture in the request", frames=(body,)), None, start, wait)
    if kind.startswith("video/") or kind == "application/octet-stream":
        return Pushed(Media("", "the video in the request", data=body), None, start, wait)
    sentence = f"expected a body of type {', '.join((JSON_TYPE, *PICTURES))} or video/mp4, got {kind[:80] or 'none'}"
    raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, code="wrong_type")


def check_count(frames: int) -> None:
    """Raise Refused for more frames than a request may have."""
    if frames > MOST_FRAMES:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"the request has {frames:,} frames at the stream's rate, and at most {MOST_FRAMES} are taken at a time; "
            "send shorter pieces",
            code="too_many_frames",
        )


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = as_number(float(text))
    except ValueError:
        found = None
    if found is None:
        raise _refused(f"time must be a number of seconds, got {text[:40]!r}", "wrong_query")
    return found


def _refused(sentence: str, code: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, sentence, code=code)
