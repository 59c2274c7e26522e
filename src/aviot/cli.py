"""The command line: one command a verb. Reports go to stdout, `--json` makes them plain data."""

import json
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from aviot.accounting import Backbone
from aviot.accounting import account as account_rows
from aviot.demo import SCENES, run_demo

app = typer.Typer(
    name="aviot",
    help="Compress the video tokens of a language model by optimal transport.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Json = Annotated[bool, typer.Option("--json", help="Print plain JSON instead of a table.")]
PAPER_RATIOS = [2.0, 4.0, 10.0]
_PAPER = Backbone()


@app.callback()
def main() -> None:
    """Compress the video tokens of a language model by optimal transport."""


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
    try:
        backbone = Backbone(
            layers=layers, width=width, feed_forward=feed_forward, grid=(rows, columns), pool_stride=pool_stride
        )
        accounts = account_rows(backbone, frames, ratio)
    except ValueError as error:
        _refuse(error)
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
def demo(
    frames: Annotated[int, typer.Option(help="Frames of the made-up video.")] = 64,
    ratio: Annotated[float, typer.Option(help="Compression ratio, above 1.")] = 4.0,
    as_json: Json = False,
) -> None:
    """Compress a made-up video for two questions and show where the supports go.

    The weights are untrained and no language model is involved: this shows the transport, not answers.

    Example: aviot demo --ratio 8
    """
    try:
        shown = run_demo(frames, ratio)
    except ValueError as error:
        _refuse(error)
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


def _refuse(error: ValueError) -> NoReturn:
    """A user's mistake is one sentence and exit code 2, no traceback."""
    Console(stderr=True).print(f"aviot: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(2)
