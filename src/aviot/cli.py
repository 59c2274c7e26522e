"""The command line: one command a verb. Reports go to stdout, `--json` makes them plain data."""

import json
import os
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
from aviot.commands.evaluate import evaluate
from aviot.commands.options import (
    CompressorOption,
    Device,
    Fps,
    Frames,
    Json,
    MaxFrames,
    Model,
    ModelRatio,
    Question,
    Ratio,
    SourceFps,
    VideoPath,
)
from aviot.demo import SCENES, run_demo
from aviot.terminal import counted, device_named, load_model, mistakes, refuse, say, working

app = typer.Typer(
    name="aviot",
    help="Compress the video tokens of a language model by optimal transport.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

PAPER_RATIOS = [2.0, 4.0, 10.0]
BENCH_FRAMES, BENCH_RATIOS, BENCH_BATCHES = [64], [4.0, 10.0], [1]
_PAPER = Backbone()

app.command()(evaluate)


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
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 64,
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


@app.command()
def bench(
    video: Annotated[Path | None, typer.Argument(help="A video to time decoding with.", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option("--model", "-m", help="A checkpoint; else random weights.")] = None,
    size: Annotated[
        str | None, typer.Option(help="Random weights: tiny, small or 7b; tiny on a CPU, 7b on a GPU.")
    ] = None,
    frames: Annotated[list[int], typer.Option(help="Frames of the video; repeat for several.")] = BENCH_FRAMES,
    ratio: Annotated[list[float], typer.Option("--ratio", "-r", help="Compression ratio; repeat.")] = BENCH_RATIOS,
    batch: Annotated[list[int], typer.Option(help="Videos at a time; repeat for several.")] = BENCH_BATCHES,
    device: Device = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16; auto: bfloat16 on a GPU.")] = "auto",
    repeats: Annotated[int, typer.Option(help="Timed runs of each part, after the warm-up.")] = 5,
    backward: Annotated[bool, typer.Option("--backward", help="Also the compressor forward and backward.")] = False,
    scaling: Annotated[bool, typer.Option("--scaling", help="The compressor alone against T, K, S and D.")] = False,
    compressor_only: Annotated[
        bool, typer.Option("--compressor-only", help="Features to features; needs no transformers.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON; - for stdout, no table.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture; needs matplotlib.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Of the random weights and inputs.")] = 0,
) -> None:
    """Measure what compression costs and saves here, part by part, once the answers are known to be right.

    Medians and spreads in milliseconds, extra peak memory, and the share of the memory bandwidth it measures itself.
    Exit code 1: the compressor is wrong on this machine, and nothing was timed.

    Example: aviot bench --size 7b --frames 64 --frames 224 --ratio 4 --json bench.json
    """
    from aviot.bench.check import CheckFailed
    from aviot.bench.options import Options
    from aviot.bench.run import run
    from aviot.bench.write import check_outputs, write_outputs

    try:
        with mistakes(), working() as report:
            options = Options(
                video=video,
                model=model,
                size=size,
                frames=tuple(frames),
                ratios=tuple(ratio),
                batches=tuple(batch),
                device=device_named(device),
                dtype=dtype,
                repeats=repeats,
                backward=backward,
                scaling=scaling,
                compressor_only=compressor_only,
                seed=seed,
            )
            check_outputs(json_file, plot)
            result = run(options, report)
        with mistakes():
            write_outputs(result, json_file, plot)
    except CheckFailed as error:
        refuse(str(error), code=1)


@app.command()
def train(
    config: Annotated[Path, typer.Option("--config", "-c", help="A YAML file; see configs/.", show_default=False)],
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
    changes: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the file; repeat.")
    ] = [],  # noqa: B006
) -> None:
    """Train what the paper trains, on this process or on as many as torchrun starts.

    Checkpoints go to the run's folder, each loadable by --model of the other commands. Exit code 1: the loss or a
    gradient was no number; the examples are named and the last checkpoint is whole.

    Example: torchrun --nproc-per-node 8 -m aviot train --config configs/llava_video_178k.yaml
    """
    first = os.environ.get("RANK", "0") == "0"
    with mistakes(silent=not first):
        from aviot.training.reading import read_config

        settings = read_config(config, changes)
    with mistakes():
        from aviot.training.loss import TrainingStopped
        from aviot.training.run import train as run_training

        try:
            last = run_training(settings, resume=resume)
        except TrainingStopped as error:
            refuse(str(error), code=1)
    if first:
        print(last)


@app.command()
def demo(
    frames: Annotated[int, typer.Option(help="Frames of the made-up video.")] = 64,
    ratio: Ratio = 4.0,
    as_json: Json = False,
) -> None:
    """Compress a made-up video for two questions and show where the supports go.

    The weights are untrained and no language model is involved: this shows the transport, not answers.

    Example: aviot demo --ratio 8
    """
    with mistakes():
        shown = run_demo(frames, ratio)
    if as_json:
        answers = [
            {
                "question": answer.scene,
                "path": answer.compression.path,
                "budgets": answer.compression.budgets,
                "frame_share": dict(zip(SCENES, answer.frame_share, strict=True)),
                "rebuilt_error": answer.rebuilt_error,
            }
            for answer in shown.answers
        ]
        report = {"tokens_before": shown.tokens_before, "tokens_after": shown.tokens_after, "answers": answers}
        print(json.dumps(report, indent=2))
        return
    console = Console()
    path = " → ".join(map(str, shown.answers[0].compression.path))
    console.print(
        f"A made-up video of {frames} frames, four scenes: {', '.join(SCENES)}. Ratio {ratio:g}: {path} frames."
    )
    console.print(f"Tokens for a 7B decoder: {shown.tokens_before:,} before, {shown.tokens_after:,} after.\n")
    table = Table("asked about", "supports a segment, stage by stage", *SCENES)
    for answer in shown.answers:
        budgets = "\n".join(str(list(stage)) for stage in answer.compression.budgets)
        table.add_row(answer.scene, budgets, *(f"{share:.0%}" for share in answer.frame_share))
    console.print(table)
    worst = max(answer.rebuilt_error for answer in shown.answers)
    console.print("Right: how much of the compressed video came from each scene, by its exact provenance.")
    console.print(f"The provenance coefficients rebuild the compressed features to {worst:.0e}.")
    console.print("The weights are untrained: this shows the transport, not answers.")
