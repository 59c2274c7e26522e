"""`aviot answer`."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.model import ModelChoice
from aviot.commands.options import (
    Base,
    BudgetText,
    DecoderOption,
    Device,
    DeviceMap,
    Download,
    Dtype,
    Fps,
    Frames,
    Json,
    Keep,
    MaxFrames,
    MaxNewTokens,
    MethodOption,
    Model,
    ModelRatio,
    Quantize,
    Questions,
    ReadTimeout,
    Revision,
    SamplingModeOption,
    SourceFps,
    VideoPath,
    any_budget,
    describe,
)
from aviot.commands.terminal import counted, mistakes, say, working
from aviot.methods.registry import DEFAULT
from aviot.video.checks import DEFAULT_LIMITS

if TYPE_CHECKING:
    from aviot.session import Answer


WHEN_FROM = {"words": "as the answer says", "provenance": "where its tokens come from"}
When = Annotated[
    bool, typer.Option("--when", help="Also print the time spans that each answer rests on, in seconds. Default: no.")
]


def answer(
    video: VideoPath,
    question: Questions,
    model: Model = None,
    base: Base = None,
    ratio: ModelRatio = None,
    keep: Keep = None,
    budget: BudgetText = None,
    method: MethodOption = DEFAULT,
    max_new_tokens: MaxNewTokens = 64,
    when: When = False,
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    sampling: SamplingModeOption = "times",
    decoder: DecoderOption = "auto",
    read_timeout: ReadTimeout = DEFAULT_LIMITS.seconds,
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    quantize: Quantize = None,
    download: Download = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Answer questions about a video from its compressed tokens.

    Answers are printed on stdout, each after its question if there are several; frames, tokens and times on stderr, or
    in the report with --json. The video is decoded and encoded once for all questions.

    Example: aviot answer cooking.mp4 -q "What is being cooked?" --ratio 4 --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.request import Request

        request = Request(
            video=video,
            questions=question,
            budget=any_budget(ratio, keep, budget),
            method=method,
            max_new_tokens=max_new_tokens,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
            sampling_mode=sampling,
            decoder=decoder,
            read_timeout=read_timeout,
            device=device,
        )
        chosen = ModelChoice.of(
            model,
            device,
            dtype=dtype,
            device_map=device_map,
            quantize=quantize,
            download=download,
            revision=revision,
            base=base,
        )
        from aviot.video.files import check_opens

        check_opens(video)
        with chosen.reading(request) as reading:
            lm = chosen.load(report)
            lm.backbone.method(method)  # refuses one that needs parts which this model does not have
            session = lm.open(video, report=report, **reading)
        answers = [
            session.ask(each, budget=request.budget, method=method, max_new_tokens=max_new_tokens, grounding=when)
            for each in question
        ]
        described = describe(request, session)
    if as_json:
        print(json.dumps(described | _plain(answers), indent=2))
        return
    for given in answers:
        _print(given, alone=len(answers) == 1)
    if described["notice"] is not None:
        say(described["notice"])


def _plain(answers: "list[Answer]") -> dict[str, Any]:
    """Return every answer as JSON data; a single one also as fields of the report itself."""
    plain = [given.as_dict() for given in answers]
    return {"answers": plain} | (plain[0] if len(plain) == 1 else {})


def _print(given: "Answer", *, alone: bool) -> None:
    print(given.text if alone else f"{given.question}\n  {given.text}")
    if given.when_from is not None:
        spans = ", ".join(f"{start:.1f} to {end:.1f} s" for start, end in given.when)
        print(f"{'' if alone else '  '}when: {spans} ({WHEN_FROM[given.when_from]})")
    path = " → ".join(map(str, given.path))
    say(f"{given.method}: {counted(given.frames, 'frame')}, {counted(given.supports, 'support')} ({path})")
    entering = "" if given.tokens_entering == given.tokens_after else f"{given.tokens_entering:,} into the decoder, "
    say(f"{given.tokens_before:,} visual tokens before, {entering}{given.tokens_after:,} after")
    for step in given.steps:
        say(f"asked at {step.budget}: {step.tokens:,} tokens, probability {step.probability:.2f}")
    if given.steps:
        say(f"{given.tokens_read:,} tokens read in all; {given.reason}")
    say(", ".join(f"{name} {value:,.0f} ms" for name, value in given.milliseconds.items()))
