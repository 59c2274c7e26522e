"""Options that commands share, under one name and one description each."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print plain JSON instead of text.")]
VideoPath = Annotated[Path, typer.Argument(help="A video file, or a folder of images.", show_default=False)]
Question = Annotated[str, typer.Option("--question", "-q", help="What to ask about the video.")]
Ratio = Annotated[float, typer.Option("--ratio", "-r", help="Compression ratio, above 1.")]
Model = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A checkpoint folder; else the package's small model.", show_default=False),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Fps = Annotated[float | None, typer.Option(help="Frames sampled a second; the checkpoint's rate if not given.")]
MaxFrames = Annotated[int | None, typer.Option(help="At most so many frames; the checkpoint's number if not given.")]
Frames = Annotated[int | None, typer.Option(help="Exactly so many frames, spread over the whole video.")]
SourceFps = Annotated[float | None, typer.Option(help="Rate of a folder of images; sampled already if not given.")]
ModelRatio = Annotated[
    float | None,
    typer.Option(
        "--ratio", "-r", help="Compression ratio, above 1; the checkpoint's if not given.", show_default=False
    ),
]
CompressorOption = Annotated[str, typer.Option("--compressor", help="aviot, uniform, segment-mean or none.")]
MaxNewTokens = Annotated[int, typer.Option(help="Longest answer, in tokens.")]
