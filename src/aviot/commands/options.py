"""Options that commands share, under one name and one description each."""

from pathlib import Path
from typing import Annotated

import typer

from aviot.budget import Budget
from aviot.methods.registry import names

Json = Annotated[bool, typer.Option("--json", help="Print plain JSON instead of text.")]
VideoPath = Annotated[Path, typer.Argument(help="A video file, or a folder of images.", show_default=False)]
Question = Annotated[str, typer.Option("--question", "-q", help="What to ask about the video.")]
Questions = Annotated[
    list[str], typer.Option("--question", "-q", help="What to ask about the video; repeat to ask several questions.")
]
Ratio = Annotated[float, typer.Option("--ratio", "-r", help="Compression ratio, above 1.")]
Model = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A checkpoint folder. Default: the bundled demo model.", show_default=False),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Fps = Annotated[float | None, typer.Option(help="Frames sampled per second. Default: the checkpoint's rate.")]
MaxFrames = Annotated[int | None, typer.Option(help="Most frames to sample. Default: the checkpoint's number.")]
Frames = Annotated[
    int | None,
    typer.Option(help="Number of frames to sample, spread over the whole video; all of them if it has fewer."),
]
SourceFps = Annotated[
    float | None, typer.Option(help="Frame rate of an image folder. Default: the images are already sampled.")
]
ReadTimeout = Annotated[
    float,
    typer.Option(
        min=1.0,
        help="Seconds after which reading one video is given up, and one more per MB of the file.",
        metavar="SECONDS",
    ),
]
ModelRatio = Annotated[
    float | None,
    typer.Option("--ratio", "-r", help="Compression ratio, above 1. Default: the checkpoint's.", show_default=False),
]
METHODS = ", ".join(names())
MethodOption = Annotated[str, typer.Option("--method", "--compressor", help=f"Compression method: {METHODS}.")]
Keep = Annotated[
    float | None,
    typer.Option(help="Share of the visual tokens to keep, above 0, instead of a ratio.", show_default=False),
]
MaxNewTokens = Annotated[int, typer.Option(help="Longest answer, in tokens.")]


def chosen_budget(ratio: float | None, keep: float | None) -> Budget | None:
    """Return the budget that was asked for; None stands for the checkpoint's own."""
    if ratio is not None and keep is not None:
        raise ValueError("give --ratio or --keep, not both")
    if keep is not None:
        return Budget(keep=keep)
    return None if ratio is None else Budget(ratio=ratio)
