"""Options that commands share, and the part of a JSON report that follows from them."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aviot.backbones.loading import DEVICE_MAPS, DTYPES, QUANTIZATIONS
from aviot.budget import Budget
from aviot.methods.registry import names

if TYPE_CHECKING:
    from aviot.request import Request
    from aviot.session import VideoSession

METHODS = ", ".join(names())

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
VideoPath = Annotated[Path, typer.Argument(help="A video file, or a folder of images.", show_default=False)]
Question = Annotated[str, typer.Option("--question", "-q", help="Question about the video.")]
Questions = Annotated[
    list[str], typer.Option("--question", "-q", help="Question about the video; repeat to ask several.")
]
Ratio = Annotated[float, typer.Option("--ratio", "-r", help="Compression ratio, above 1.")]
ModelRatio = Annotated[
    float | None,
    typer.Option("--ratio", "-r", help="Compression ratio, above 1. Default: the checkpoint's.", show_default=False),
]
Keep = Annotated[
    float | None,
    typer.Option(help="Share of the visual tokens to keep, above 0, instead of a ratio.", show_default=False),
]
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        help="Budget instead of a ratio: 4, keep=0.1, tokens=2048, supports=16, or auto, which asks with few tokens, "
        "and again with more where the answer is not sure enough; auto:min=10,max=2 says with how many.",
        show_default=False,
    ),
]
MethodOption = Annotated[str, typer.Option("--method", "--compressor", help=f"Compression method: {METHODS}.")]
Model = Annotated[  # text: a path would lose the ./ that says it is none of the hub's names
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A checkpoint folder, or a name on the Hugging Face hub that is in its cache on this machine (see "
        "--download). Default: the bundled demo model.",
        show_default=False,
    ),
]
ModelFolder = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A checkpoint folder. Default: the bundled demo model.", show_default=False),
]
Base = Annotated[
    Path | None,
    typer.Option(
        help="The base model's folder, if --model is an adapter that aviot train wrote. Default: the recorded one.",
        show_default=False,
    ),
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch the model from the Hugging Face hub if it is not on this machine.")
]
Revision = Annotated[
    str | None,
    typer.Option(help="Commit, branch or tag of a model of the hub. Default: its main branch.", show_default=False),
]
Dtype = Annotated[
    str, typer.Option(help=f"Type of the weights: {', '.join(DTYPES)}; auto: the checkpoint's own.", metavar="TYPE")
]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        help=f"Spread the model over all devices: {', '.join(DEVICE_MAPS)}. Default: one device.",
        show_default=False,
    ),
]
Quantize = Annotated[
    str | None,
    typer.Option(
        "--quantize",
        help=f"Quantise the weights while loading: {' or '.join(QUANTIZATIONS)}; needs bitsandbytes. Default: no.",
        show_default=False,
    ),
]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Compile the encoder on a GPU (Qwen's families, VideoLLaMA3): slower with the first videos, then faster.",
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N; auto uses a GPU if there is one.")]
Fps = Annotated[float | None, typer.Option(help="Frames sampled per second. Default: the checkpoint's rate.")]
MaxFrames = Annotated[int | None, typer.Option(help="Most frames to sample. Default: the checkpoint's number.")]
Frames = Annotated[
    int | None,
    typer.Option(help="Number of frames to sample, spread over the whole video; all of them if it has fewer."),
]
SourceFps = Annotated[
    float | None, typer.Option(help="Frame rate of an image folder. Default: the images are already sampled.")
]
SamplingModeOption = Annotated[
    str,
    typer.Option(
        "--sampling",
        help="times: the frames at the sampled times; keyframes: the keyframes nearest to them, which hours-long files "
        "give much faster, each at its own time.",
        metavar="MODE",
    ),
]
DecoderOption = Annotated[
    str,
    typer.Option(
        "--decoder",
        help="Where a file is decoded: auto, cpu, or cuda (an NVIDIA GPU's decoder); the frames are the same.",
        metavar="NAME",
    ),
]
ReadTimeout = Annotated[
    float,
    typer.Option(
        min=1.0,
        help="Time limit for reading one video, in seconds; one more second is allowed per MB of the file.",
        metavar="SECONDS",
    ),
]
MaxNewTokens = Annotated[int, typer.Option(help="Longest answer, in tokens.")]
ChoiceInstruction = Annotated[
    str | None,
    typer.Option(help="Instruction appended after the options; pass '' for none. Default: to answer with the letter."),
]
OpenInstruction = Annotated[
    str | None,
    typer.Option(help="Instruction appended after a question without options; pass '' for none. Default: to be brief."),
]


def describe(request: "Request", session: "VideoSession") -> dict[str, Any]:
    """Return a request and the video that was read for it as JSON data: everything but the results."""
    import aviot
    from aviot.explain.study import ModelInfo
    from aviot.methods.registry import compresses

    backbone, video = session.backbone, session.video
    info = ModelInfo.of(backbone)
    budget = (request.budget or backbone.default_budget) if compresses(request.method) else None
    return {
        "aviot": aviot.__version__,
        "model": info.name,
        "model_path": backbone.name_or_path,
        "notice": info.foreign(video),
        "video": str(request.video),
        "duration": video.duration,
        "frames": len(video),
        "times": video.times,
        "damage": None if video.damage is None else asdict(video.damage),
        "ratio": budget.ratio if isinstance(budget, Budget) else None,
        "budget": None if budget is None else str(budget),
        "method": request.method,
        "compressor": request.method,
    }
