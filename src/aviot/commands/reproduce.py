"""`aviot reproduce`."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aviot.commands.model import DEMO_MODEL_ANSWERS, ModelChoice, demo_model
from aviot.commands.options import Device, Json
from aviot.commands.terminal import mistakes, say, stderr_console

if TYPE_CHECKING:
    from aviot.session import VideoLM
    from aviot_lab.reproduce.rows import Weights

Experiment = Literal["paper", "field", "auto"]
Out = Annotated[Path, typer.Option("--output", "-o", help="Folder for the run and its report.")]
OUT = Path("reproduction")


def reproduce(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            help="A checkpoint folder; repeat for several, in the experiment field. Default: the bundled demo model; "
            "in the experiment field the yardstick, if it is installed.",
            show_default=False,
        ),
    ] = None,
    experiment: Annotated[
        Experiment,
        typer.Option(
            help="The paper's experiments, every method of the registry on the same questions (field), or automatic "
            "budgets, calibrated on one split of the world and measured on another (auto)."
        ),
    ] = "paper",
    uniform: Annotated[
        Path | None, typer.Option(help="Checkpoint fine-tuned with Uniform Keep. Default: none.", show_default=False)
    ] = None,
    segment_mean: Annotated[
        Path | None, typer.Option(help="Checkpoint fine-tuned with Segment Mean. Default: none.", show_default=False)
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Method of the experiment field that all others are compared with. Default: aviot-free, if there is "
            "such a method, else random-tokens.",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        str, typer.Option(help="Size of the experiments: small (minutes on two CPU cores) or full (for a GPU).")
    ] = "small",
    questions: Annotated[
        int | None, typer.Option(help="Least number of questions. Default: the setting's; full has at least 2,000.")
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(help="Frames per video, not in paper. Default: the setting's.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the world and of the bootstrap.")] = 0,
    device: Device = "auto",
    output: Out = OUT,
    as_json: Json = False,
) -> None:
    """Repeat the paper's experiments with the bundled demo model, in its drawn world, or compare all methods there.

    Needs the package aviot_lab. Writes report.html, report.md and report.json. After an interruption, the same command
    resumes where it stopped. Progress is printed on stderr.

    Example: aviot reproduce --setting full -o reproduction
    """
    with mistakes():
        _require_lab()
        from aviot.request import checkpoint_folder
        from aviot.utils.files import check_folder
        from aviot.utils.machine import check_device_name

        check_folder(output, "name a folder for the run with -o")
        given: dict[Weights, Path | None] = {"uniform": uniform, "segment-mean": segment_mean}
        tuned = {name: checkpoint_folder(folder) for name, folder in given.items() if folder is not None}
        models = [checkpoint_folder(folder) for folder in model or ()]
        _check_options(experiment, models, tuned, reference, frames)
        check_device_name(device)
        size: Any  # of the chosen experiment
        if experiment == "field":
            from aviot_lab.field.size import size_named as field_size

            size = field_size(setting, questions, frames)
        elif experiment == "auto":
            from aviot_lab.auto.size import size_named as auto_size

            size = auto_size(setting, questions, frames)
        else:
            from aviot_lab.reproduce.size import size_named as paper_size

            size = paper_size(setting, questions)
        from aviot_lab.world import WorldConfig

        WorldConfig(seed=seed, frames=(64 if frames is None else frames,))  # checks both
        how = {"setting": setting, "size": size, "seed": seed, "out": output, "device": device}
        if experiment == "auto":
            report = _auto(models, **how)
        else:
            report = _field(models, reference, **how) if experiment == "field" else _paper(models, tuned, **how)
        _print_report(report, as_json=as_json)
    say(f"{output}: report.html, report.md, report.json; {_asked(report)} questions")


def _check_options(
    experiment: Experiment,
    models: Sequence[Path],
    tuned: "dict[Weights, Path]",
    reference: str | None,
    frames: int | None,
) -> None:
    """Raise ValueError for options of the other experiment."""
    if experiment != "paper" and tuned:
        raise ValueError("--uniform and --segment-mean are options of --experiment paper; leave them out")
    if experiment != "field" and reference is not None:
        raise ValueError("--reference is an option of --experiment field; leave it out")
    if experiment == "paper" and frames is not None:
        raise ValueError("--frames is an option of --experiment field and auto; leave it out")
    if experiment != "field" and len(models) > 1:
        raise ValueError(f"--experiment {experiment} takes one --model, got {len(models)}; name one")


def _paper(models: Sequence[Path], tuned: "dict[Weights, Path]", **how: Any) -> dict[str, Any]:
    """Run the paper's experiments."""
    from aviot.utils.machine import device_named
    from aviot_lab.reproduce.progress import LOADING, RunProgress

    folders: dict[Weights, Path] = {"model": models[0] if models else demo_model(), **tuned}
    if not models:
        say(DEMO_MODEL_ANSWERS)
    with RunProgress(stderr_console()) as progress:
        progress.phase(LOADING)
        from aviot_lab.reproduce.run import Options
        from aviot_lab.reproduce.run import reproduce as run

        device = how.pop("device")
        options = Options(folders=folders, device=device_named(device), **how)
        return run(options, lambda folder: _load(folder, device), progress)


def _field(models: Sequence[Path], reference: str | None, **how: Any) -> dict[str, Any]:
    """Compare every method of the registry."""
    from aviot.utils.machine import device_named
    from aviot_lab.field.size import chosen_reference, compressing_methods
    from aviot_lab.field.yardstick import yardstick_folder
    from aviot_lab.reproduce.progress import LOADING, RunProgress

    compared = chosen_reference(reference, compressing_methods())
    models = models or [yardstick_folder() or demo_model()]
    with RunProgress(stderr_console()) as progress:
        progress.phase(LOADING)
        from aviot_lab.field.run import FieldOptions, measure_field, named_folders

        device = how.pop("device")
        folders = named_folders(models)
        options = FieldOptions(folders=folders, reference=compared, device=device_named(device), **how)
        return measure_field(options, lambda folder: _load(folder, device), progress)


def _auto(models: Sequence[Path], **how: Any) -> dict[str, Any]:
    """Calibrate and measure automatic budgets."""
    from aviot.utils.machine import device_named
    from aviot_lab.reproduce.progress import LOADING, RunProgress

    with RunProgress(stderr_console()) as progress:
        progress.phase(LOADING)
        from aviot_lab.auto.run import AutoOptions, measure_auto

        device = how.pop("device")
        options = AutoOptions(folder=models[0] if models else demo_model(), device=device_named(device), **how)
        return measure_auto(options, lambda folder: _load(folder, device), progress)


def _load(folder: Path, device: str) -> "VideoLM":
    return ModelChoice(name=folder, device=device).load(lambda _: None)


def _require_lab() -> None:
    """Raise ValueError if the package aviot_lab is not installed."""
    if find_spec("aviot_lab") is None:
        raise ValueError(
            "aviot reproduce needs the package aviot_lab, which is not installed; in a clone of AVIOT's repository: "
            "pip install --constraint constraints.txt '.[plot,video]'"
        )


def _asked(report: dict[str, Any]) -> str:
    asked = report["questions"]
    return f"{asked['asked']:,}" if "asked" in asked else f"{asked['short']:,} and {asked['long']:,}"


def _print_report(report: dict[str, Any], *, as_json: bool) -> None:
    """Print report.json's content, or the accuracies of the controlled comparison or of the methods."""
    if as_json:
        print(json.dumps(report, indent=2, allow_nan=False))
        return
    figures = report["figures"]
    if "oracle" in figures:
        from aviot_lab.auto.report import lines_of

        print("\n".join(lines_of(figures)))
        return
    if "controlled" not in figures:
        for name, found in figures.items():
            for line in found["means"]:
                span = "" if line["interval"] is None else " [{:.1%}, {:.1%}]".format(*line["interval"])
                print(f"{name}: {line['method']}, mean: {line['mean']:.1%}{span}")
        return
    for line in figures["controlled"]["lines"]:
        low, high = line["interval"]
        ratio = "" if line["ratio"] is None else f" at ratio {line['ratio']:g}"
        print(f"{line['title']}{ratio}: {line['accuracy']:.1%} [{low:.1%}, {high:.1%}]")
