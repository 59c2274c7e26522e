"""`aviot explain`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from aviot.budget import Budget
from aviot.commands.expand import expand_groups
from aviot.commands.groups import FixedBudget, ModelOptions, ReadingOptions
from aviot.commands.options import Json, MaxNewTokens, MethodOption, VideoPath, describe
from aviot.commands.terminal import counted, mistakes, say, working
from aviot.methods.registry import DEFAULT


@expand_groups
def explain(
    video: VideoPath,
    question: Annotated[
        list[str], typer.Option("--question", "-q", help="Question about the video; repeat to compare up to 4.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.", show_default=False)],
    *,
    model: ModelOptions,
    budget: FixedBudget,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Folder for figures as PDF and PNG; needs matplotlib. Default: no figures.", show_default=False
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Safetensors file for the exact coefficients. Default: none.", show_default=False),
    ] = None,
    animate: Annotated[
        Path | None,
        typer.Option(help="MP4 or GIF file for an animation of the page's first screen. Default: none."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare with another METHOD, RATIO or METHOD:RATIO on the same page; repeat.",
            metavar="METHOD:RATIO",
            show_default=False,
        ),
    ] = None,
    support: Annotated[
        int | None,
        typer.Option(
            help="Support that figures show, counted from 0. Default: the one most relevant to the first question."
        ),
    ] = None,
    frame: Annotated[
        int | None,
        typer.Option(help="Frame that figures show, counted from 0. Default: the support's most relevant one."),
    ] = None,
    method: MethodOption = DEFAULT,
    max_new_tokens: MaxNewTokens = 64,
    reading: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Write a page that shows which frames and patches an answer was made from.

    The page is one HTML file that loads nothing from a network.

    Example: aviot explain cooking.mp4 -q "What is cooked?" -q "Who cooks?" --ratio 5 -o report.html --model MODEL
    """
    with mistakes(), working() as report:
        from aviot.request import MOST_QUESTIONS, Request, check_compresses, check_questions
        from aviot.utils.files import check_folder, check_outputs_differ

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
        check_questions(question, MOST_QUESTIONS)
        check_outputs_differ({"the page": output, "the data": export, "the animation": animate}, video)
        others = [_setting(text, method, request.fixed_budget) for text in against or ()]
        if figures is not None:
            check_folder(figures, "--figures names a folder")
        _check_pair(support, frame, drawn=figures is not None)
        from aviot.explain.figures import ChosenPair
        from aviot.explain.outputs import Outputs
        from aviot.explain.outputs import explain as write_explanation
        from aviot.explain.pictures import open_with_pictures
        from aviot.explain.study import Asking, Setting

        outputs = Outputs(output, figures, export, ChosenPair(support, frame), animate)
        outputs.check(video)
        check_compresses(method)
        from aviot.video.files import check_opens

        check_opens(video)
        lm = chosen.load(report)
        lm.backbone.method(method)  # refuses one that needs parts which this model does not have
        session, pictures = open_with_pictures(lm, video, report=report, **request.reading)
        settings = tuple(Setting(*other) for other in others)
        asking = Asking(tuple(question), request.fixed_budget, method, max_new_tokens, settings)
        found, written = write_explanation(session, pictures, asking, outputs)
    if found.notice is not None:
        say(found.notice)
    if as_json:
        print(
            json.dumps(
                describe(request, session)
                | {
                    "model_shape": {name: getattr(found.model, name) for name in ("parameters", "layers", "width")},
                    "files": [str(path) for path in written],
                    "questions": found.questions,
                    "answers": [asdict(condition) for condition in found.conditions],
                    "comparisons": [asdict(comparison) for comparison in found.comparisons],
                },
                indent=2,
            )
        )
        return
    for path in written:
        print(path)
    say(f"answered by {found.model.name} ({found.model.facts})")
    asked = f"{counted(len(session.video), 'frame')}, {counted(len(found.questions), 'question')}"
    say(f"{asked}; open {output} in a browser")


def _setting(text: str, method: str, budget: Budget | None) -> tuple[str, Budget | None]:
    """Return the method and the budget of METHOD, RATIO or METHOD:RATIO; what is left out is the page's own."""
    from aviot.methods import registry

    name, _, ratio = text.rpartition(":")
    if not name:
        is_ratio = _number(ratio)
        name, ratio = (method, ratio) if is_ratio else (ratio, "")
    registry.check_name(name)
    if not ratio:
        return name, budget
    number = _number(ratio)
    if number is None:
        raise ValueError(f"--against takes METHOD, RATIO or METHOD:RATIO, such as uniform or aviot:8; got {text!r}")
    return name, Budget(ratio=number)


def _number(text: str) -> float | None:
    """Return the number that a text spells; None if it spells none."""
    try:
        return float(text)
    except ValueError:
        return None


def _check_pair(support: int | None, frame: int | None, *, drawn: bool) -> None:
    """Raise ValueError for a negative support or frame, and for one without figures to show it."""
    for name, value in (("support", support), ("frame", frame)):
        if value is not None and value < 0:
            raise ValueError(f"--{name} counts from 0, got {value}")
        if value is not None and not drawn:
            raise ValueError(f"--{name} chooses what figures show; add --figures FOLDER, or leave it out")
