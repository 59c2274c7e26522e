"""`aviot compress`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.described import describe
from aviot.commands.options import (
    CompressorOption,
    Device,
    Fps,
    Frames,
    Json,
    MaxFrames,
    Model,
    ModelRatio,
    Question,
    SourceFps,
    VideoPath,
)
from aviot.terminal import counted, load_model, mistakes, say, working


def compress(
    video: VideoPath,
    question: Question,
    output: Annotated[Path, typer.Option("--output", "-o", help="The safetensors file to write.", show_default=False)],
    model: Model = None,
    ratio: ModelRatio = None,
    compressor: CompressorOption = "aviot",
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write a video's compressed features and where they came from.

    The file holds `features` [K,S,D] and `coefficients` [K,S,T]; its metadata, JSON under `aviot`, question,
    name, duration, times, path and budgets.

    Example: aviot compress cooking.mp4 -q "What is being cooked?" -o cooking.safetensors --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.request import Request, check_mixes
        from aviot.utils.files import check_outputs_differ

        request = Request(
            video=video,
            questions=[question],
            model=model,
            ratio=ratio,
            compressor=compressor,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
            device=device,
        )
        check_mixes(compressor)
        check_outputs_differ({"the features": output}, video)
        loaded, processor = load_model(model, device, report)
        from aviot.models.answering import compress_video, save_compression

        read, compression, _, watch = compress_video(
            loaded,
            processor,
            video,
            question,
            ratio=ratio,
            compressor=compressor,  # type: ignore[arg-type]
            report=report,
            **request.sampling,
        )
        assert compression is not None  # only "none" makes none
        save_compression(output, read, compression, question)
    if as_json:
        described = describe(request, loaded, read) | {
            "question": question,
            "file": str(output),
            "features": list(compression.features.shape),
            "path": compression.path,
            "budgets": compression.budgets,
            "milliseconds": {name: round(value, 1) for name, value in watch.spent.items()},
        }
        print(json.dumps(described, indent=2))
        return
    say(f"{output}: {counted(len(read), 'frame')} as {counted(compression.features.shape[0], 'support')}")
