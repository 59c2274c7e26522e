"""`aviot reproduce`."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.model import DEMO_MODEL_ANSWERS, ModelChoice, demo_model
from aviot.commands.options import Device, Json, ModelFolder
from aviot.commands.terminal import mistakes, say, stderr_console

if TYPE_CHECKING:
    from aviot_lab.reproduce.rows import Weights

Out = Annotated[Path, typer.Option("--output", "-o", help="Folder for the run and its report.")]
OUT = Path("reproduction")


def reproduce(
    model: ModelFolder = None,
    uniform: Annotated[
        Path | None, typer.Option(help="Checkpoint fine-tuned with Uniform Keep. Default: none.", show_default=False)
    ] = None,
    segment_mean: Annotated[
        Path | None, typer.Option(help="Checkpoint fine-tuned with Segment Mean. Default: none.", show_default=False)
    ] = None,
    setting: Annotated[
        str, typer.Option(help="Size of the experiments: small (minutes on two CPU cores) or full (for a GPU).")
    ] = "small",
    questions: Annotated[
        int | None, typer.Option(help="Least number of questions. Default: the setting's; full has at least 2,000.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the world and of the bootstrap.")] = 0,
    device: Device = "auto",
    output: Out = OUT,
    as_json: Json = False,
) -> None:
    """Repeat the paper's experiments with the bundled demo model, in its drawn world.

    Needs the package aviot_lab. Writes report.html, report.md and report.json. After an interruption, the same command
    resumes where it stopped. Progress is printed on stderr.

    Example: aviot reproduce --setting full -o reproduction
    """
    with mistakes():
        _require_lab()
        from aviot.request import checkpoint_folder
        from aviot.utils.files import check_folder
        from aviot.utils.machine import check_device_name, device_named
        from aviot_lab.reproduce.progress import LOADING, RunProgress
        from aviot_lab.reproduce.size import size_named

        size = size_named(setting, questions)
        check_folder(output, "name a folder for the run with -o")
        given: dict[Weights, Path | None] = {"model": model, "uniform": uniform, "segment-mean": segment_mean}
        named = {name: checkpoint_folder(folder) for name, folder in given.items() if folder is not None}
        check_device_name(device)
        from aviot_lab.world import WorldConfig

        WorldConfig(seed=seed)  # checks the seed
        folders: dict[Weights, Path] = named if model is not None else {"model": demo_model(), **named}
        if model is None:
            say(DEMO_MODEL_ANSWERS)
        with RunProgress(stderr_console()) as progress:
            progress.phase(LOADING)
            from aviot_lab.reproduce.run import Options
            from aviot_lab.reproduce.run import reproduce as run

            options = Options(
                folders=folders,
                setting=setting,
                size=size,
                seed=seed,
                out=output,
                device=device_named(device),
            )
            report = run(options, lambda folder: ModelChoice(name=folder, device=device).load(lambda _: None), progress)
        _print_report(report, as_json=as_json)
    asked = report["questions"]
    say(f"{output}: report.html, report.md, report.json; {asked['short']:,} and {asked['long']:,} questions")


def _require_lab() -> None:
    """Raise ValueError if the package aviot_lab is not installed."""
    if find_spec("aviot_lab") is None:
        raise ValueError(
            "aviot reproduce needs the package aviot_lab, which is not installed; in a clone of AVIOT's repository: "
            "pip install --constraint constraints.txt '.[plot,video]'"
        )


def _print_report(report: dict[str, Any], *, as_json: bool) -> None:
    """Print report.json's content, or the accuracies of the controlled comparison."""
    if as_json:
        print(json.dumps(report, indent=2, allow_nan=False))
        return
    for line in report["figures"]["controlled"]["lines"]:
        low, high = line["interval"]
        ratio = "" if line["ratio"] is None else f" at ratio {line['ratio']:g}"
        print(f"{line['title']}{ratio}: {line['accuracy']:.1%} [{low:.1%}, {high:.1%}]")
