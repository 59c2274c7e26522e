"""Requests of the OpenAI protocol: what they may say, and the question about one video that they ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aviot.budget import AUTO, AutoBudget, Budget
from aviot.methods import registry
from aviot.request import check_sampling
from aviot.serve.conversation import SHOWN, Message, conversation, refused, with_field
from aviot.serve.settings import Settings
from aviot.web.refusal import Refused

MOST_STOPS = 4
MOST_PARTS = 250_000  # of a request's JSON, beside a comma for every frame: each takes memory when it is parsed

Provenance = Literal["frames", "tokens"] | None


class StreamOptions(BaseModel):
    """Options of streamed answers."""

    include_usage: bool = False


class AviotOptions(BaseModel):
    """Options for sampling and compressing the video, and for what is told about it. Not part of OpenAI's protocol."""

    model_config = ConfigDict(extra="forbid")

    method: str | None = Field(default=None, description="Compression method. Default: the server's.")
    budget: float | dict[str, float] | str | None = Field(
        default=None,
        description='A ratio such as 4, one of {"ratio": 4}, {"keep": 0.25}, {"supports": 16}, {"tokens": 2048}, or '
        '"auto": few tokens, and more where the answer is not sure enough ("auto:min=10,max=2,quality=0.9").',
    )
    frames: int | None = Field(default=None, description="Number of frames to sample, spread over the whole video.")
    fps: float | None = Field(
        default=None, description="Frames to sample per second; for frames in the request, their rate."
    )
    provenance: bool | Literal["frames", "tokens"] = Field(
        default=False, description="Return the sources of the visual tokens: by frame (true), or of every token."
    )


class ChatRequest(BaseModel):
    """A request for an answer about one video. Fields that are not listed are ignored."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    messages: list[Message]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    n: int | None = 1
    stop: str | list[str] | None = None
    aviot: AviotOptions | None = None


@dataclass
class Address:
    """The address of a video, which may be the video itself and is forgotten once it has been taken."""

    url: str

    def take(self) -> str:
        """Return the address, the first time only."""
        url, self.url = self.url, ""
        return url


@dataclass(frozen=True)
class Chat:
    """One question about one video, and how to answer it."""

    video: Address
    question: str
    history: tuple[tuple[str, str], ...]
    method: str
    budget: Budget | AutoBudget | None
    sampling: dict[str, Any]
    max_new_tokens: int
    stops: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    provenance: Provenance = None


def parse(body: bytes, settings: Settings) -> Chat:
    """Return what a request asks for; raise Refused, with the field that is to blame."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_PARTS + settings.limits.frames:
        raise refused("the request's JSON has too many values; send one question about one video", None)
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(error) from None
    _check_model(request, settings)
    _check_unsupported(request)
    video, history, question = conversation(request.messages)
    options = request.aviot or AviotOptions()
    method = options.method or settings.method
    own = {name: value for name in ("frames", "fps") if (value := getattr(options, name)) is not None}
    sampling = own or _foreign_sampling(request.model_extra or {})
    with_field(lambda: registry.check_name(method), "aviot.method")
    with_field(lambda: check_sampling(sampling), "aviot.frames" if "frames" in sampling else "aviot.fps")
    if sampling.get("frames", 0) > settings.limits.frames:
        sentence = f"at most {settings.limits.frames:,} frames can be sampled here, got {sampling['frames']:,}"
        raise refused(sentence, "aviot.frames", status=HTTPStatus.UNPROCESSABLE_ENTITY)
    told = options.provenance
    return Chat(
        video=Address(video),
        question=question,
        history=history,
        method=method,
        budget=settings.budget if options.budget is None else _budget(options.budget),
        sampling=sampling,
        max_new_tokens=_new_tokens(request, settings),
        stops=_stops(request.stop),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        provenance=("frames" if told is True else told or None),
    )


def _foreign_sampling(more: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the video is sampled by the fields of vLLM's clients, lmms-eval's among them."""
    media = more.get("media_io_kwargs")
    for given in (media.get("video") if isinstance(media, dict) else None, more.get("mm_processor_kwargs")):
        if isinstance(given, dict):
            found = {"frames": given.get("num_frames"), "fps": given.get("fps")}
            return {name: value for name, value in found.items() if value not in (None, -1)}
    return {}


def invalid_request(error: ValidationError) -> Refused:
    """Return the refusal of a request that is no JSON, or lacks a field, or has one of a wrong type."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return refused("the request's body is not valid JSON", None, code="invalid_json")
    places = [str(part) for part in first["loc"] if not (isinstance(part, str) and part[:1].isupper())]
    name = ".".join(part for part in places if "[" not in part and part not in ("str", "float", "bool", "list"))
    got = repr(first.get("input"))
    got = got if len(got) <= SHOWN else f"{got[:SHOWN]}..."
    said = first["msg"][:1].lower() + first["msg"][1:]
    sentence = f"{name or 'the request'}: {said}" + ("" if first["type"] == "missing" else f", got {got}")
    return refused(sentence, name or None)


def _check_model(request: ChatRequest, settings: Settings) -> None:
    if request.model is None:
        raise refused(f"the request names no model; this server has {settings.name!r}", "model")
    check_model(request.model, settings)


def check_model(name: str, settings: Settings) -> None:
    """Raise Refused for a model that is not the server's."""
    if name != settings.name:
        raise refused(
            f"there is no model {name[:SHOWN]!r} here; this server has {settings.name!r}",
            "model",
            code="model_not_found",
            status=HTTPStatus.NOT_FOUND,
        )


def _check_unsupported(request: ChatRequest) -> None:
    """Refuse what would change the answer and is not done here; answers are greedy and there is one of them."""
    more = request.model_extra or {}
    if request.n not in (None, 1):
        raise refused(f"n must be 1: there is one greedy answer, got {request.n}", "n")
    if request.temperature not in (None, 0):
        sentence = (
            f"temperature must be 0: answers are greedy, the most probable token each time, got {request.temperature:g}"
        )
        raise refused(sentence, "temperature")
    for name in ("tools", "functions"):
        if more.get(name):
            raise refused(f"{name} are not supported: this server answers questions about videos in text", name)
    for name in ("logprobs", "top_logprobs", "logit_bias", "audio", "frequency_penalty", "presence_penalty"):
        if more.get(name):
            raise refused(f"{name} is not supported; leave it out", name)
    kind = more.get("response_format")
    if isinstance(kind, dict) and kind.get("type", "text") != "text":
        raise refused("response_format must be text; other formats are not supported", "response_format")


def _budget(given: float | dict[str, float] | str) -> Budget | AutoBudget:
    def make() -> Budget | AutoBudget:
        if isinstance(given, str) and given.partition(":")[0] == AUTO:
            return AutoBudget.parse(given[:SHOWN])
        if isinstance(given, str):
            raise ValueError(
                f'a budget here is a ratio such as 4, {{"keep": 0.25}}, {{"supports": 16}}, {{"tokens": 2048}}, or '
                f'"auto", got {given[:SHOWN]!r}'
            )
        if not isinstance(given, dict):
            return Budget.of(given)
        unknown = set(given) - {"ratio", "keep", "supports", "tokens"}
        if unknown:
            raise ValueError(
                f"a budget has one of ratio, keep, supports and tokens, got {sorted(unknown)[0][:SHOWN]!r}"
            )
        whole = {name: int(value) for name, value in given.items() if float(value).is_integer()}
        return Budget(**{name: whole.get(name, value) for name, value in given.items()})  # type: ignore[arg-type]

    return with_field(make, "aviot.budget")


def _new_tokens(request: ChatRequest, settings: Settings) -> int:
    name = "max_completion_tokens" if request.max_completion_tokens is not None else "max_tokens"
    given = getattr(request, name)
    if given is None:
        return settings.max_new_tokens
    if not 1 <= given <= settings.limits.new_tokens:
        raise refused(f"{name} must be from 1 to {settings.limits.new_tokens:,}, got {given:,}", name)
    return given


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = (given,) if isinstance(given, str) else tuple(given or ())
    if len(stops) > MOST_STOPS or not all(stops):
        raise refused(f"stop must be at most {MOST_STOPS} texts that are not empty", "stop")
    return stops
