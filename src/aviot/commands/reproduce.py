"""`aviot reproduce`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aviot.commands.options import Device, Model
from aviot.machine import device_named
from aviot.terminal import chosen_model, load_model, mistakes, say

if TYPE_CHECKING:
    from aviot.reproduce.rows import Weights

Out = Annotated[Path, typer.Option("--output", "-o", help="Folder of the run and its report.")]
OUT = Path("reproduction")


def reproduce(
    model: Model = None,
    uniform: Annotated[
        Path | None, typer.Option(help="The model fine-tuned with Uniform Keep.", show_default=False)
    ] = None,
    segment_mean: Annotated[
        Path | None, typer.Option(help="The model fine-tuned with Segment Mean.", show_default=False)
    ] = None,
    setting: Annotated[str, typer.Option(help="small: minutes on two CPU cores; full: for a GPU.")] = "small",
    questions: Annotated[
        int | None, typer.Option(help="Questions at least; the setting's number if not given; at least 2,000 in full.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the world and of resampled intervals.")] = 0,
    device: Device = "auto",
    output: Out = OUT,
) -> None:
    """Repeat the paper's experiments in the small model's world.

    The folder gets report.html, report.md and report.json. Killed at any moment, the same command goes on where it was.

    Example: aviot reproduce --setting full -o reproduction
    """
    with mistakes():
        from aviot.reproduce.run import Options
        from aviot.reproduce.run import reproduce as run
        from aviot.reproduce.size import size_named

        given: dict[Weights, Path | None] = {
            "model": chosen_model(model),
            "uniform": uniform,
            "segment-mean": segment_mean,
        }
        options = Options(
            folders={name: folder for name, folder in given.items() if folder is not None},
            setting=setting,
            size=size_named(setting, questions),
            seed=seed,
            out=output,
            device=device_named(device),
        )
        report = run(options, lambda folder: load_model(folder, device, lambda _: None))
    asked = report["questions"]
    for line in report["figures"]["controlled"]["lines"]:
        low, high = line["interval"]
        ratio = "" if line["ratio"] is None else f" at ratio {line['ratio']:g}"
        print(f"{line['title']}{ratio}: {line['accuracy']:.1%} [{low:.1%}, {high:.1%}]")
    say(f"{output}: report.html, report.md, report.json; {asked['short']:,} and {asked['long']:,} questions")
