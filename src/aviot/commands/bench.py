"""`aviot bench`."""

from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.options import METHODS, Device, Json
from aviot.commands.terminal import mistakes, refuse, working
from aviot.methods.registry import check_name

FRAMES, RATIOS, BATCHES = [64], [4.0, 10.0], [1]


def bench(
    video: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[VIDEO]", help="A video to time decoding with. Default: a generated clip."),
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", "-m", help="A checkpoint; else random weights.")] = None,
    size: Annotated[
        str | None, typer.Option(help="Random weights: tiny, small or 7b; tiny on a CPU, 7b on a GPU.")
    ] = None,
    frames: Annotated[list[int], typer.Option(help="Frames of the video; repeat for several.")] = FRAMES,
    ratio: Annotated[list[float], typer.Option("--ratio", "-r", help="Compression ratio; repeat.")] = RATIOS,
    method: Annotated[
        list[str],
        typer.Option("--method", help=f"Method to time: {METHODS}; repeat. Default: uniform, random and aviot."),
    ] = [],  # noqa: B006
    batch: Annotated[list[int], typer.Option(help="Videos at a time; repeat for several.")] = BATCHES,
    device: Device = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16; auto: bfloat16 on a GPU.")] = "auto",
    repeats: Annotated[int, typer.Option(help="Timed runs of each part, after the warm-up.")] = 5,
    backward: Annotated[bool, typer.Option("--backward", help="Also the compressor forward and backward.")] = False,
    scaling: Annotated[bool, typer.Option("--scaling", help="The compressor alone against T, K, S and D.")] = False,
    compressor_only: Annotated[
        bool, typer.Option("--compressor-only", help="Features to features; needs no transformers.")
    ] = False,
    as_json: Json = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the report to this file, as JSON.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture; needs matplotlib.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Of the random weights and inputs.")] = 0,
) -> None:
    """Measure what compression costs and saves here, part by part, once the answers are known to be right.

    Medians and spreads in milliseconds, extra peak memory, and the share of the memory bandwidth it measures itself.
    Exit code 1: the compressor is wrong on this machine, and nothing was timed.

    Example: aviot bench --size 7b --frames 64 --frames 224 --ratio 4 -o bench.json
    """
    with mistakes():
        from aviot.bench.measured import check_measured

        clip = _chosen_video(video or [], as_json=as_json)
        read = None if scaling or compressor_only else clip  # else `Options` refuses it
        _check_early(read, model, ratio, device, output, plot)
        for name in method:
            check_name(name)
        check_measured(frames=frames, batches=batch, repeats=repeats, size=size, dtype=dtype)

    from aviot.bench.check import CheckFailed
    from aviot.bench.options import Options
    from aviot.bench.run import run
    from aviot.bench.write import check_outputs, write_outputs
    from aviot.utils.machine import device_named

    try:
        with mistakes(), working() as report:
            options = Options(
                video=clip,
                model=model,
                size=size,
                frames=tuple(frames),
                ratios=tuple(ratio),
                methods=tuple(method),
                batches=tuple(batch),
                device=device_named(device),
                dtype=dtype,
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


def _check_early(
    video: Path | None, model: Path | None, ratios: list[float], device: str, output: Path | None, plot: Path | None
) -> None:
    """Refuse what takes no torch to see is wrong; `Options` checks the rest."""
    from aviot.budget import Budget
    from aviot.request import checkpoint_folder
    from aviot.utils.files import check_outputs_differ
    from aviot.utils.machine import check_device_name
    from aviot.video.checks import check_source

    for ratio in ratios:
        Budget(ratio=ratio)
    check_device_name(device)
    if video is not None:
        check_source(video)
    if model is not None:
        checkpoint_folder(model)
    check_outputs_differ({"the report": output, "the picture": plot}, video)


def _chosen_video(given: list[Path], *, as_json: bool) -> Path | None:
    """Return the one video, if any; explain --output to whoever gives --json a file, as it once took one."""
    if Path("-") in given:
        raise ValueError("- is not a video: --json prints JSON on stdout by itself, so leave the - out")
    files = [name for name in given if name.suffix.lower() == ".json"]
    if not files and as_json:
        files = [name for name in given if not name.exists()]
    if files:
        raise ValueError(
            f"{files[0]} is not a video: --json takes no file name and prints on stdout; "
            f"to write the report to a file, say --output {files[0]}"
        )
    if len(given) > 1:
        raise ValueError(f"expected at most one video, got {len(given)}: {', '.join(map(str, given))}")
    return given[0] if given else None
