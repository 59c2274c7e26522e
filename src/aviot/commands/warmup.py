"""`aviot warmup`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from aviot.commands.model import ModelChoice
from aviot.commands.options import Device, Download, Dtype, MethodOption, Model, Revision
from aviot.commands.terminal import mistakes, say, working
from aviot.methods.registry import DEFAULT

if TYPE_CHECKING:
    from aviot.session import VideoLM

FRAMES, RATIOS = [64, 224], [4.0]
SOURCE = (720, 1280)  # height and width of the frames that stand for a video's
REPEATS = 3  # from the third time on, the work of a recurring shape is replayed
NOTHING = "a CPU has nothing to compile: kernels are for GPUs; nothing was warmed up"


def warmup(
    model: Model = None,
    frames: Annotated[list[int], typer.Option(help="Number of frames per video; repeat for several.")] = FRAMES,
    ratio: Annotated[
        list[float], typer.Option("--ratio", "-r", help="Compression ratio, above 1; repeat for several.")
    ] = RATIOS,
    method: MethodOption = DEFAULT,
    device: Device = "auto",
    dtype: Dtype = "auto",
    download: Download = False,
    revision: Revision = None,
) -> None:
    """Compile the kernels for a model's videos ahead, as for an image or before a server starts.

    What Triton compiles stays in its cache on disk (TRITON_CACHE_DIR, by default in the home directory), so that the
    first video of any later process finds it there. On a CPU there is nothing to compile.

    Example: aviot warmup --model checkpoints/aviot-7b --frames 64 --frames 224 --ratio 4
    """
    with mistakes(), working() as report:
        from aviot.budget import Budget
        from aviot.methods.registry import check_name
        from aviot.utils.machine import device_named
        from aviot.video.sampling import Sampling

        check_name(method)
        for count in frames:
            Sampling(frames=count)
        budgets = [Budget(ratio=each) for each in ratio]
        chosen = ModelChoice.of(model, device, dtype=dtype, download=download, revision=revision)
        if device_named(device).type != "cuda":
            say(NOTHING)
            return
        lm = chosen.load(report)
        for count in frames:
            for budget in budgets:
                report(f"{count} frames at {budget}")
                say(f"{count} frames at {budget}: {warm(lm, count, budget.ratio or 0, method):.1f} s")


def warm(lm: "VideoLM", frames: int, ratio: float, method: str) -> float:
    """Compress a video of noise as an answer with a record does, and as one without does; return the seconds."""
    import numpy as np

    start = time.perf_counter()
    height, width = lm.backbone.frame_size(frames, SOURCE)
    noise = np.random.default_rng(0).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)
    session = lm.open(noise, source_fps=2, frames=frames)
    prompt = lm.backbone.benchmark_prompt(session.video)
    session.compress("What is seen?", budget=ratio, method=method)
    for _ in range(REPEATS):
        session.prepare(prompt, budget=ratio, method=method, max_new_tokens=1)
    session.ask("What is seen?", budget=ratio, method=method, max_new_tokens=2)
    return time.perf_counter() - start
