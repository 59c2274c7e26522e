"""`aviot demo` in a copy of the package without the small model."""

import json

from rich.console import Console
from rich.table import Table

from aviot.demo_untrained import SCENES, run_demo
from aviot.terminal import mistakes

FRAMES = 64


def untrained(ratio: float, as_json: bool) -> None:
    """Compress a made-up video for two questions and show where the supports go: the transport, not answers."""
    with mistakes():
        shown = run_demo(FRAMES, ratio)
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
        f"A made-up video of {FRAMES} frames, four scenes: {', '.join(SCENES)}. Ratio {ratio:g}: {path} frames."
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
