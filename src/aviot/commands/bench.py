"""`aviot bench`."""

from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.model import ModelChoice
from aviot.commands.options import METHODS, Base, Compile, Device, Download, Json
from aviot.commands.terminal import mistakes, refuse, working
from aviot.methods.registry import check_name, compresses, names

EVERY = "all"
FRAMES, RATIOS, BATCHES = [64], [4.0, 10.0], [1]


def bench(
    video: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[VIDEO]", help="Video to time decoding with. Default: a generated clip."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A checkpoint folder, or a name on the Hugging Face hub that is in its cache. Default: random.",
        ),
    ] = None,
    base: Base = None,
    download: Download = False,
    size: Annotated[
        str | None,
        typer.Option(
            help="Random weights: tiny, small or 7b (LLaVA-Video), llava-onevision-7b, qwen2.5-vl-7b or qwen3-vl-8b. "
            "Default: tiny on a CPU, 7b on a GPU."
        ),
    ] = None,
    frames: Annotated[list[int], typer.Option(help="Number of frames per video; repeat for several.")] = FRAMES,
    ratio: Annotated[
        list[float], typer.Option("--ratio", "-r", help="Compression ratio, above 1; repeat for several.")
    ] = RATIOS,
    method: Annotated[
        list[str],
        typer.Option(
            "--method",
            help=f"Method to time: {METHODS}; repeat for several, or all. Default: uniform, random and aviot.",
        ),
    ] = [],  # noqa: B006
    batch: Annotated[list[int], typer.Option(help="Number of videos per batch; repeat for several.")] = BATCHES,
    device: Device = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            help="Type of weights and features: auto, float32 or bfloat16; auto: bfloat16 on a GPU, else float32."
        ),
    ] = "auto",
    compiled: Compile = False,
    repeats: Annotated[int, typer.Option(help="Number of timed runs of each part, after the warm-up.")] = 5,
    backward: Annotated[
        bool, typer.Option("--backward", help="Also time the compressor's forward and backward pass.")
    ] = False,
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling", help="Time only the compressor, for several numbers of frames, supports, patches and channels."
        ),
    ] = False,
    compressor_only: Annotated[
        bool,
        typer.Option(
            "--compressor-only",
            help="Time only the methods, from features to features; those of --method on the same tokens. Needs no "
            "transformers.",
        ),
    ] = False,
    as_json: Json = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the report to this file as JSON.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also plot the report to this image file; needs matplotlib.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random weights and inputs.")] = 0,
) -> None:
    """Measure the time that compression costs and saves on this machine, part by part.

    First checks the compressor against the float64 reference. Reports medians and spreads in milliseconds, extra peak
    memory, and the share of the measured memory bandwidth. Exit code 1: the check failed, and nothing was timed.

    Example: aviot bench --size 7b --frames 64 --frames 224 --ratio 4 -o bench.json
    """
    with mistakes():
        from aviot.bench.sizes import check_settings

        clip = _chosen_video(video or [], as_json=as_json)
        read = None if scaling or compressor_only else clip  # `Options` refuses it in those modes
        _check_early(read, ratio, device, output, plot)
        if model is None and base is not None:
            raise ValueError("--base is the model below an adapter; name the adapter with --model")
        chosen = None if model is None else ModelChoice.of(model, device, download=download, base=base)
        chosen_methods = _chosen_methods(method)
        check_settings(frames=frames, batches=batch, repeats=repeats, size=size, dtype=dtype)

    from aviot.bench.check import CheckFailed
    from aviot.bench.report import check_outputs, write_outputs
    from aviot.bench.run import Options, run
    from aviot.utils.machine import device_named

    try:
        with mistakes(), working() as report:
            options = Options(
                video=clip,
                model=None if chosen is None else chosen.folder,
                base=base,
                size=size,
                frames=tuple(frames),
                ratios=tuple(ratio),
                methods=chosen_methods,
                batches=tuple(batch),
                device=device_named(device),
                dtype=dtype,
                compiled=compiled,
                repeats=repeats,
                backward=backward,
                scaling=scaling,
                compressor_only=compressor_only,
                seed=seed,
            )
            check_outputs(output, plot)
            result = run(options, report)
        with mistakes():
            write_outputs(result, output, plot, as_json=as_json)
    except CheckFailed as error:
        refuse(str(error), code=1)


def _chosen_methods(given: list[str]) -> tuple[str, ...]:
    """Return the methods to time, without duplicates; `all` stands for each one that compresses."""
    for name in given:
        if name != EVERY:
            check_name(name)
    every = [name for name in names() if compresses(name)] if EVERY in given else []
    return tuple(dict.fromkeys(name for place in given for name in (every if place == EVERY else [place])))


def _check_early(video: Path | None, ratios: list[float], device: str, output: Path | None, plot: Path | None) -> None:
    """Raise ValueError for mistakes that can be found without torch; `Options` checks the rest."""
    from aviot.budget import Budget
    from aviot.utils.files import check_outputs_differ
    from aviot.utils.machine import check_device_name
    from aviot.video.checks import check_source

    for ratio in ratios:
        Budget(ratio=ratio)
    check_device_name(device)
    if video is not None:
        check_source(video)
    check_outputs_differ({"the report": output, "the picture": plot}, video)


def _chosen_video(given: list[Path], *, as_json: bool) -> Path | None:
    """Return the video, or None; point to --output if --json is followed by a file name, which it once took."""
    if Path("-") in given:
        raise ValueError("- is not a video: --json prints JSON on stdout by itself, so leave the - out")
    files = [name for name in given if name.suffix.lower() == ".json"]
    if not files and as_json:
        files = [name for name in given if not name.exists()]
    if files:
        raise ValueError(
            f"{files[0]} is not a video: --json takes no file name and prints on stdout; "
            f"to write the report to a file, use --output {files[0]}"
        )
    if len(given) > 1:
        raise ValueError(f"expected at most one video, got {len(given)}: {', '.join(map(str, given))}")
    return given[0] if given else None
