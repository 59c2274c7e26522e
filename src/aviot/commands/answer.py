"""`aviot answer`."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.expand import expand_groups
from aviot.commands.groups import AnswerBudget, ModelOptions, ReadingOptions
from aviot.commands.options import Json, MaxNewTokens, MethodOption, Questions, VideoPath, describe
from aviot.commands.terminal import counted, mistakes, say, working
from aviot.methods.registry import DEFAULT

if TYPE_CHECKING:
    from aviot.session import Answer


WHEN_FROM = {"words": "as the answer says", "provenance": "where its tokens come from"}
When = Annotated[
    bool, typer.Option("--when", help="Also print the time spans that each answer rests on, in seconds. Default: no.")
]


@expand_groups
def answer(
    video: VideoPath,
    question: Questions,
    *,
    model: ModelOptions,
    budget: AnswerBudget,
    method: MethodOption = DEFAULT,
    max_new_tokens: MaxNewTokens = 64,
    when: When = False,
    reading: ReadingOptions,
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
            budget=budget.chosen,
            method=method,
            max_new_tokens=max_new_tokens,
            device=model.device,
            **reading.arguments,
        )
        chosen = model.choice()
        session = chosen.open(request, report)
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
