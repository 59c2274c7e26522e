"""`aviot account`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from aviot.accounting import Account, Backbone
from aviot.accounting import account as account_rows
from aviot.commands.options import Json
from aviot.commands.terminal import mistakes
from aviot.utils.printing import SafeConsole

PAPER_RATIOS = [2.0, 4.0, 10.0]
UNLIMITED = 1000  # columns: the table has its own width, so that no cell is truncated
_PAPER = Backbone()


def account(
    frames: Annotated[int, typer.Option(help="Number of sampled frames.")] = 64,
    ratio: Annotated[
        list[float], typer.Option("--ratio", "-r", help="Compression ratio, above 1; repeat for several.")
    ] = PAPER_RATIOS,
    layers: Annotated[int, typer.Option(help="Number of decoder layers.")] = _PAPER.layers,
    width: Annotated[int, typer.Option(help="Hidden size of the decoder.")] = _PAPER.width,
    feed_forward: Annotated[
        int, typer.Option(help="Intermediate size of the decoder's feed-forward layers.")
    ] = _PAPER.feed_forward,
    rows: Annotated[int, typer.Option(help="Rows of the encoder's patch grid.")] = _PAPER.grid[0],
    columns: Annotated[int, typer.Option(help="Columns of the encoder's patch grid.")] = _PAPER.grid[1],
    pool_stride: Annotated[
        int, typer.Option(help="Stride of the pooling before the decoder; 1: no pooling.")
    ] = _PAPER.pool_stride,
    as_json: Json = False,
) -> None:
    """Print visual tokens and prefill operations with and without compression.

    The defaults are those of LLaVA-Video-7B-Qwen2 at 64 frames and give the paper's table.

    Example: aviot account --frames 224 -r 4 -r 20
    """
    with mistakes():
        backbone = Backbone(
            layers=layers, width=width, feed_forward=feed_forward, grid=(rows, columns), pool_stride=pool_stride
        )
        accounts = account_rows(backbone, frames, ratio)
    if as_json:
        print(json.dumps([asdict(row) for row in accounts], indent=2))
        return
    SafeConsole(width=UNLIMITED).print(
        _table(accounts, f"{frames:,} frames, {backbone.tokens_per_support:,} tokens per frame")
    )


def _table(accounts: list[Account], title: str) -> Table:
    """Return a table that fits into 80 columns for videos of up to millions of frames."""
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 2, 0, 0), pad_edge=False)
    headings = ("setting", "supports", "visual\ntokens", "tokens\nkept", "prefill\n(TFLOP)", "prefill\nsaved")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "setting" else "right", no_wrap=True)
    for row in accounts:
        table.add_row(
            "uncompressed" if row.ratio is None else f"ratio {row.ratio:g}",
            f"{row.supports:,}",
            f"{row.tokens:,}",
            f"{row.retention:.1%}",
            f"{row.prefill_operations / 1e12:,.2f}",
            f"{row.saved:.1%}",
        )
    return table
