"""The command line: one command a verb. Reports go to stdout, `--json` makes them plain data."""

import json
import sys
from dataclasses import asdict
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from aviot.accounting import Backbone
from aviot.accounting import account as account_rows
from aviot.commands.app import app as serve_app
from aviot.commands.bench import bench
from aviot.commands.demo import demo
from aviot.commands.evaluate import evaluate
from aviot.commands.explain import explain
from aviot.commands.options import (
    CompressorOption,
    Device,
    Fps,
    Frames,
    Json,
    MaxFrames,
    MaxNewTokens,
    Model,
    ModelRatio,
    Question,
    SourceFps,
    VideoPath,
)
from aviot.commands.reproduce import reproduce
from aviot.commands.train import train
from aviot.terminal import counted, load_model, mistakes, say, working

app = typer.Typer(
    name="aviot",
    help="Compress the video tokens of a language model by optimal transport.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

PAPER_RATIOS = [2.0, 4.0, 10.0]
_PAPER = Backbone()

for verb in (explain, evaluate, bench, train, demo, reproduce):
    app.command()(verb)
app.command("app")(serve_app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("aviot"))
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compress the video tokens of a language model by optimal transport."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an answer must not be lost to a terminal that cannot show it
            stream.reconfigure(errors="replace")


@app.command()
def answer(
    video: VideoPath,
    question: Question,
    model: Model,
    ratio: ModelRatio = None,
    compressor: CompressorOption = "aviot",
    max_new_tokens: MaxNewTokens = 64,
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Answer a question about a video from its compressed tokens.

    The answer goes to stdout; what was done for it to stderr, or with --json into the report.

    Example: aviot answer cooking.mp4 -q "What is being cooked?" --ratio 4 --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.models.answering import answer_question

        loaded, processor = load_model(model, device, report)
        given = answer_question(
            loaded,
            processor,
            video,
            question,
            ratio=ratio,
            compressor=compressor,  # type: ignore[arg-type]
            max_new_tokens=max_new_tokens,
            report=report,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
        )
    asked = None if compressor == "none" else loaded.config.ratio if ratio is None else ratio
    if as_json:
        print(json.dumps(asdict(given) | {"question": question, "ratio": asked, "compressor": compressor}, indent=2))
        return
    print("".join(c if c.isprintable() or c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in given.text))
    spent = ", ".join(f"{name} {value:,.0f} ms" for name, value in given.milliseconds.items())
    path = " → ".join(map(str, given.path))
    say(f"{counted(given.frames, 'frame')}, {counted(given.supports, 'support')} ({path})")
    say(f"{given.tokens_before:,} visual tokens before, {given.tokens_after:,} after")
    say(spent)


@app.command()
def compress(
    video: VideoPath,
    question: Question,
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The safetensors file to write.", show_default=False)],
    ratio: ModelRatio = None,
    compressor: CompressorOption = "aviot",
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    device: Device = "auto",
) -> None:
    """Write a video's compressed features and where they came from.

    The file holds `features` [K,S,D] and `coefficients` [K,S,T]; its metadata, JSON under `aviot`, question,
    name, duration, times, path and budgets.

    Example: aviot compress cooking.mp4 -q "What is being cooked?" -o cooking.safetensors --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.models.answering import check_output, compress_video, save_compression

        check_output(output)
        loaded, processor = load_model(model, device, report)
        read, compression, _, _ = compress_video(
            loaded,
            processor,
            video,
            question,
            ratio=ratio,
            compressor=compressor,  # type: ignore[arg-type]
            report=report,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
        )
        if compression is None:
            raise ValueError("compressor none leaves nothing to write; choose aviot, uniform or segment-mean")
        save_compression(output, read, compression, question)
    say(f"{output}: {counted(len(read), 'frame')} as {counted(compression.features.shape[0], 'support')}")


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A published AVIOT or LLaVA-Video checkpoint.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="The folder to write.", show_default=False)],
) -> None:
    """Write a published checkpoint in this package's own layout, one shard in memory at a time.

    Example: aviot convert LLaVA-Video-7B-Qwen2 aviot-start
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    silent = not sys.stderr.isatty()
    with mistakes(), Progress(*columns, console=Console(stderr=True), transient=True, disable=silent) as progress:
        from aviot.models.conversion import convert_checkpoint

        task = progress.add_task("shards", total=None)
        for done, total in convert_checkpoint(source, target):
            progress.update(task, completed=done, total=total)
    say(f"wrote {target}")


@app.command()
def account(
    frames: Annotated[int, typer.Option(help="Frames of the video.")] = 64,
    ratio: Annotated[list[float], typer.Option(help="Compression ratio; repeat for several.")] = PAPER_RATIOS,
    layers: Annotated[int, typer.Option(help="Decoder layers.")] = _PAPER.layers,
    width: Annotated[int, typer.Option(help="Decoder width.")] = _PAPER.width,
    feed_forward: Annotated[int, typer.Option(help="Width of the decoder's feed-forward layer.")] = _PAPER.feed_forward,
    rows: Annotated[int, typer.Option(help="Rows of the encoder's patch grid.")] = _PAPER.grid[0],
    columns: Annotated[int, typer.Option(help="Columns of the encoder's patch grid.")] = _PAPER.grid[1],
    pool_stride: Annotated[int, typer.Option(help="Pooling before the decoder; 1: none.")] = _PAPER.pool_stride,
    as_json: Json = False,
) -> None:
    """Visual tokens and prefill operations with and without compression.

    The defaults are LLaVA-Video-7B-Qwen2 at 64 frames and print the paper's table.

    Example: aviot account --frames 224 --ratio 4 --ratio 20
    """
    with mistakes():
        backbone = Backbone(
            layers=layers, width=width, feed_forward=feed_forward, grid=(rows, columns), pool_stride=pool_stride
        )
        accounts = account_rows(backbone, frames, ratio)
    if as_json:
        print(json.dumps([asdict(row) for row in accounts], indent=2))
        return
    table = Table(title=f"{frames} frames, {backbone.tokens_per_support} tokens a frame")
    for heading in ("Setting", "K", "Visual tokens", "Retention", "Prefill (TFLOP)", "Saved"):
        table.add_column(heading, justify="left" if heading == "Setting" else "right")
    for row in accounts:
        table.add_row(
            "uncompressed" if row.ratio is None else f"r = {row.ratio:g}",
            f"{row.supports}",
            f"{row.tokens:,}",
            f"{row.retention:.1%}",
            f"{row.prefill_operations / 1e12:.2f}",
            f"{row.saved:.1%}",
        )
    Console().print(table)
