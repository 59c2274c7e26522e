"""`aviot compress`."""

from pathlib import Path
from typing import Annotated

import typer

from aviot.commands.options import (
    CompressorOption,
    Device,
    Fps,
    Frames,
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
) -> None:
    """Write a video's compressed features and where they came from.

    The file holds `features` [K,S,D] and `coefficients` [K,S,T]; its metadata, JSON under `aviot`, question,
    name, duration, times, path and budgets.

    Example: aviot compress cooking.mp4 -q "What is being cooked?" -o cooking.safetensors --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.files import check_output
        from aviot.models.answering import compress_video, save_compression

        check_output(output)
        loaded, processor = load_model(model, device, report)
        read, compression, _, _ = compress_video(
            loaded,
            processor,
            video,
            question,
            ratio=ratio,
            compressor=compressor,  # type: ignore[arg-type]
            report=report,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
        )
        if compression is None:
            raise ValueError("compressor none leaves nothing to write; choose aviot, uniform or segment-mean")
        save_compression(output, read, compression, question)
    say(f"{output}: {counted(len(read), 'frame')} as {counted(compression.features.shape[0], 'support')}")
