"""`aviot answer`."""

import json
from dataclasses import asdict

from aviot.commands.options import (
    CompressorOption,
    Device,
    Fps,
    Frames,
    Json,
    MaxFrames,
    MaxNewTokens,
    Model,
    ModelRatio,
    Question,
    SourceFps,
    VideoPath,
)
from aviot.terminal import counted, load_model, mistakes, printable, say, working


def answer(
    video: VideoPath,
    question: Question,
    model: Model = None,
    ratio: ModelRatio = None,
    compressor: CompressorOption = "aviot",
    max_new_tokens: MaxNewTokens = 64,
    fps: Fps = None,
    max_frames: MaxFrames = None,
    frames: Frames = None,
    source_fps: SourceFps = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Answer a question about a video from its compressed tokens.

    The answer goes to stdout; what was done for it to stderr, or with --json into the report.

    Example: aviot answer cooking.mp4 -q "What is being cooked?" --ratio 4 --model checkpoints/aviot-7b
    """
    with mistakes(), working() as report:
        from aviot.models.answering import answer_question

        loaded, processor = load_model(model, device, report)
        given = answer_question(
            loaded,
            processor,
            video,
            question,
            ratio=ratio,
            compressor=compressor,  # type: ignore[arg-type]
            max_new_tokens=max_new_tokens,
            report=report,
            fps=fps,
            max_frames=max_frames,
            frames=frames,
            source_fps=source_fps,
        )
    asked = None if compressor == "none" else loaded.config.ratio if ratio is None else ratio
    if as_json:
        print(json.dumps(asdict(given) | {"question": question, "ratio": asked, "compressor": compressor}, indent=2))
        return
    print(printable(given.text))
    spent = ", ".join(f"{name} {value:,.0f} ms" for name, value in given.milliseconds.items())
    path = " → ".join(map(str, given.path))
    say(f"{counted(given.frames, 'frame')}, {counted(given.supports, 'support')} ({path})")
    say(f"{given.tokens_before:,} visual tokens before, {given.tokens_after:,} after")
    say(spent)
