"""`aviot demo`."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from aviot.commands.options import Json, Ratio
from aviot.demo import SCENES, run_demo
from aviot.terminal import mistakes


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
