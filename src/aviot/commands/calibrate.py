"""`aviot calibrate`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.options import Json
from aviot.commands.terminal import mistakes, say
from aviot.methods.registry import DEFAULT

SHOWN = 12
"""Lines of the curve that are printed."""


def calibrate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished evaluation with both budgets.", show_default=False)],
    smallest: Annotated[str, typer.Option("--min", help="The budget to ask with first.")] = "10",
    largest: Annotated[str, typer.Option("--max", help="The budget to ask with again.")] = "2",
    method: Annotated[str, typer.Option(help="The method of both.")] = DEFAULT,
    target: Annotated[float, typer.Option(help="Largest loss of accuracy against --max, as a share.")] = 0.005,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Checkpoint folder to write the calibration into.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out when an answer from few tokens is sure enough, for --budget auto.

    Reads an evaluation of held-out questions under both budgets. The quality that is found is the smallest whose loss
    of accuracy stays within the target with 97.5 % confidence. With -o it is stored beside the model's weights, where
    `aviot answer --budget auto` finds it.

    Example: aviot evaluate held_out.jsonl -m MODEL -r 10 -r 2 -o run && aviot calibrate run -o MODEL
    """
    with mistakes():
        from aviot.budget import Budget
        from aviot.evaluation.config import Setting
        from aviot.utils.files import check_folder

        small, large = (Setting.of(method, Budget.parse(text)) for text in (smallest, largest))
        if output is not None:
            check_folder(output, "name the checkpoint's folder")
            if not (output / "config.json").is_file():
                raise ValueError(f"{output} has no config.json; name the folder of the checkpoint that was evaluated")
        from aviot.evaluation.calibration import calibrate as calibrated
        from aviot.evaluation.results import read_finished_rows
        from aviot.evaluation.run import RESULTS

        if not (run / RESULTS).is_file():
            raise ValueError(f"{run} has no {RESULTS}; name the folder of a finished evaluation")
        found, curve = calibrated(read_finished_rows(run / RESULTS), small, large, target)
        if output is not None:
            found.save(output)
    if as_json:
        print(json.dumps({"calibration": asdict(found), "curve": [asdict(point) for point in curve]}, indent=2))
        return
    step = max(1, len(curve) // SHOWN)
    for point in [*curve[:-1:step], curve[-1]]:
        print(
            f"quality {point.quality:.3f}: right {100 * point.accuracy:.1f} %, lost {100 * point.loss:.2f} points "
            f"(at most {100 * point.most:.2f}), {100 * point.again:.0f} % asked again, {point.tokens:,.0f} tokens read"
        )
    print(f"chosen: {found.quality:g}")
    say("with -o CHECKPOINT it is stored for --budget auto" if output is None else f"wrote it into {output}")
