"""`aviot compress`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.commands.model import ModelChoice
from aviot.commands.options import (
    Base,
    DecoderOption,
    Device,
    DeviceMap,
    Download,
    Dtype,
    Fps,
    Frames,
    Json,
    Keep,
    MaxFrames,
    MethodOption,
    Model,
    ModelRatio,
    Quantize,
    Question,
    ReadTimeout,
    Revision,
    SamplingModeOption,
    SourceFps,
    VideoPath,
    chosen_budget,
    describe,
)
from aviot.commands.terminal import counted, mistakes, say, working
from aviot.methods.registry import DEFAULT
from aviot.video.checks import DEFAULT_LIMITS

if TYPE_CHECKING:
    from aviot.session import ConditionedVideo


def compress(
    video: VideoPath,
    question: Question,
    output: Annotated[Path, typer.Option("--output", "-o", help="Safetensors file to write.", show_default=False)],
    model: Model = None,
    base: Base = None,
    ratio: ModelRatio = None,
    keep: Keep = None,
    method: MethodOption = DEFAULT,
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    sampling: SamplingModeOption = "times",
    decoder: DecoderOption = "auto",
    read_timeout: ReadTimeout = DEFAULT_LIMITS.seconds,
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    quantize: Quantize = None,
    download: Download = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Write a video's compressed features and their provenance.

    The file has `features` [K,S,D] and `coefficients` [K,S,T] if the method mixes whole frames, and `tokens`,
    `positions`, `indices` and `weights` otherwise. Its metadata has question, name, duration, times, path and budgets
    as JSON under `aviot`.

    Example: aviot compress cooking.mp4 -q "What is being cooked?" -o cooking.safetensors --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.request import Request, check_compresses
        from aviot.utils.files import check_outputs_differ

        request = Request(
            video=video,
            questions=[question],
            budget=chosen_budget(ratio, keep),
            method=method,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
            sampling_mode=sampling,
            decoder=decoder,
            read_timeout=read_timeout,
            device=device,
        )
        chosen = ModelChoice.of(
            model,
            device,
            dtype=dtype,
            device_map=device_map,
            quantize=quantize,
            download=download,
            revision=revision,
            base=base,
        )
        check_outputs_differ({"the features": output}, video)
        check_compresses(method)
        from aviot.video.files import check_opens

        check_opens(video)
        with chosen.reading(request) as reading:
            lm = chosen.load(report)
            lm.backbone.method(method)  # refuses one that needs parts which this model does not have
            session = lm.open(video, report=report, **reading)
        from aviot.answers import save_compression

        made = session.compress(question, budget=request.fixed_budget, method=method)
        save_compression(output, session.video, made)
    if as_json:
        described = describe(request, session) | {"question": question, "file": str(output)} | _shapes(made)
        print(json.dumps(described | {"milliseconds": session.opening_milliseconds}, indent=2))
        return
    compression = made.made.compression
    count = len(made.made) if compression is None else len(compression.features)
    what = counted(count, "token" if compression is None else "support")
    say(f"{output}: {counted(len(session.video), 'frame')} as {what}")


def _shapes(made: "ConditionedVideo") -> dict[str, Any]:
    """Return the shapes of the file's tensors as JSON data."""
    compression = made.made.compression
    if compression is None:
        return {"tokens": list(made.made.tokens.shape)}
    return {
        "features": list(compression.features.shape),
        "path": compression.path,
        "budgets": compression.budgets,
    }
