"""`aviot demo`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from aviot.budget import Budget
from aviot.commands.model import ModelChoice
from aviot.commands.options import Device, Json, ModelFolder, Ratio
from aviot.commands.terminal import counted, mistakes, working
from aviot.utils.printing import SafeConsole

if TYPE_CHECKING:
    from aviot.demo import Demo

SCENE = 3  # number in the test split
ASKED_OF_FILES = ("What is shown at the beginning?", "What is shown at the end?")
BAR = 24  # length of the longest bar, in characters


def demo(
    video: Annotated[
        Path | None, typer.Option("--video", help="A video file to use instead of a drawn scene.", show_default=False)
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option(
            "--question",
            "-q",
            help="Question to ask instead of the scene's own; repeat for several.",
            show_default=False,
        ),
    ] = None,
    scene: Annotated[
        int | None, typer.Option(help=f"Number of the scene to draw. Default: {SCENE}.", show_default=False)
    ] = None,
    ratio: Ratio = 4.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the video and the page.")] = Path(
        "aviot-demo"
    ),
    model: ModelFolder = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Draw a video, ask two questions about it, and show how it was compressed for each.

    The model was not trained on the scene. The page that is written shows the frames and patches that each answer was
    made from. Nothing is downloaded.

    Example: aviot demo --ratio 8
    """
    with mistakes(), working() as report:
        from aviot.request import checkpoint_folder
        from aviot.utils.machine import check_device_name

        if video is not None and scene is not None:
            raise ValueError(f"--scene {scene} draws a video and --video {video} names one; give one of the two")
        number = SCENE if scene is None else scene
        _check(video, number, question or ASKED_OF_FILES, ratio, output)
        check_device_name(device)
        if model is not None:
            checkpoint_folder(model)
        lm = ModelChoice(name=model, device=device).load(report)
        from aviot.demo import PAGE, draw_scene, show

        output.mkdir(parents=True, exist_ok=True)
        asked: dict[str, str | None] = dict.fromkeys(ASKED_OF_FILES)
        shown_file = video
        if shown_file is None:
            report("draw")
            shown_file, drawn = draw_scene(number, output)
            asked = dict(drawn)
        if question:
            asked = dict.fromkeys(question)
        shown = show(lm, shown_file, asked, output / PAGE, budget=Budget(ratio=ratio), report=report)
    if as_json:
        more = {"right": [one.right for one in shown.asked]}
        print(json.dumps(asdict(shown) | more, indent=2, default=str))
        return
    console = SafeConsole()
    for part in _described(shown):
        console.print(part)
    if shown.notice is not None:
        console.print(shown.notice, markup=False)


def _check(video: Path | None, scene: int, questions: Sequence[str], ratio: float, folder: Path) -> None:
    """Raise ValueError for invalid options, before anything is loaded or written."""
    from aviot.request import MOST_QUESTIONS, check_questions
    from aviot.scenes.files import check_number
    from aviot.utils.files import check_folder
    from aviot.video.checks import check_source

    if video is not None:
        check_source(video)
    check_folder(folder, "name a folder for the demo with -o")
    if video is None:
        check_number(scene)
    Budget(ratio=ratio)
    check_questions(questions, MOST_QUESTIONS)


def _described(shown: "Demo") -> Iterator[str | Table]:
    path, frames = " → ".join(map(str, shown.path)), counted(shown.frames, "frame")
    yield f"[bold]{escape(str(shown.video))}[/bold]: {frames}, compressed to {shown.path[-1]} ({path})."
    yield f"Answered by {escape(shown.model)}."
    yield f"Visual tokens for the decoder: {shown.tokens_before:,} before, {shown.tokens_after:,} after.\n"
    known = any(one.truth is not None for one in shown.asked)
    answers = Table("", "question", "answer", *(["in truth"] if known else []))
    for number, one in enumerate(shown.asked, start=1):
        truth = [] if one.truth is None else [f"{one.truth} {'✓' if one.right else '✗'}"]
        answers.add_row(str(number), escape(one.question), escape(one.answer), *truth)
    yield answers
    if shown.spans:
        yield "\nSupports that each part of the video got in the first stage, for each question:"
        yield _allocations(shown)
    yield f"\n[bold]{escape(str(shown.page))}[/bold] shows where every token came from; open it in a browser."


def _allocations(shown: "Demo") -> Table:
    """Return bars side by side, one column per question."""
    table = Table("seconds", *(f"question {number}" for number in range(1, len(shown.asked) + 1)))
    most = max(max(one.budgets[0]) for one in shown.asked)
    for place, (start, end) in enumerate(shown.spans):
        counts = [one.budgets[0][place] for one in shown.asked]
        table.add_row(f"{start:g} to {end:g}", *(f"{'█' * round(BAR * count / most)} {count}" for count in counts))
    return table
