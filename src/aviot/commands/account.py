"""`aviot account`."""

import json
import re
from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from aviot.accounting import Account, Backbone
from aviot.accounting import account as account_rows
from aviot.commands.model import ModelChoice
from aviot.commands.options import Base, Download, Json
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
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A checkpoint to count for, instead of the shape options. Default: the paper's.",
            show_default=False,
        ),
    ] = None,
    base: Base = None,
    download: Download = False,
    video_size: Annotated[
        str, typer.Option(help="Width and height of the video's frames; the tokens of some models depend on it.")
    ] = "1280x720",
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

    The defaults are those of LLaVA-Video-7B-Qwen2 at 64 frames and give the paper's table. --model counts for another
    checkpoint, whose weights are not read.

    Example: aviot account --frames 224 -r 4 -r 20
    """
    with mistakes():
        size = _size(video_size)
        backbone = Backbone(
            layers=layers, width=width, feed_forward=feed_forward, grid=(rows, columns), pool_stride=pool_stride
        )
        merged = frames
        if model is None and base is not None:
            raise ValueError("--base is the model below an adapter; name the adapter with --model")
        if model is not None:
            if backbone != _PAPER:
                raise ValueError("--model has its own shape; leave out the options for layers, sizes and pooling")
            backbone, merged = _shape_of(ModelChoice.of(model, "cpu", download=download, base=base), frames, size)
        accounts = account_rows(backbone, merged, ratio)
    if as_json:
        print(json.dumps([asdict(row) for row in accounts], indent=2))
        return
    title = f"{frames:,} frames, {backbone.tokens_per_support:,} tokens per frame"
    if merged != frames:
        title = f"{frames:,} frames merged to {merged:,}, {backbone.tokens_per_support:,} tokens each"
    SafeConsole(width=UNLIMITED).print(_table(accounts, title))


def _shape_of(model: ModelChoice, frames: int, size: tuple[int, int]) -> tuple[Backbone, int]:
    """Return a checkpoint's shape for videos of this size, and the number of frames that its encoder makes."""
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    from aviot.backbones.registry import shape_of

    found = shape_of(model.folder, frames, size, base=model.base)
    return found.decoder, found.frames


def _size(text: str) -> tuple[int, int]:
    """Return height and width of a size as WIDTHxHEIGHT."""
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise ValueError(f"--video-size must be WIDTHxHEIGHT, such as 1280x720, got {text!r}")
    return int(found[2]), int(found[1])


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
