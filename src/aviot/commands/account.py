"""`aviot account`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from aviot.accounting import Backbone
from aviot.accounting import account as account_rows
from aviot.commands.options import Json
from aviot.terminal import mistakes

PAPER_RATIOS = [2.0, 4.0, 10.0]
_PAPER = Backbone()


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
