"""From a file to the first token, as a timeline, beside decoding alone and the model's work alone.

python benchmarks/timeline.py VIDEO --size 7b [--ratio 4 --repeats 5 --decoder auto --plot out.png] > out.json

Weights are random. Each repeat reads the file, encodes while it is decoded, compresses for a question and generates one
token; "in turn" does the same one after the other. Medians of seconds after two warm-ups, and the spans of the last
repeat, as JSON on stdout and as text on stderr. `limit` is the larger of decoding alone and the model's work alone:
what no order of the same work can beat.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from aviot.backbones.base import CompressionRequest, EncodedVideo
from aviot.backbones.pipeline import Trace, open_video
from aviot.bench.workload import random_lm
from aviot.budget import Budget
from aviot.engine.base import Stopwatch
from aviot.session import VideoLM
from aviot.utils.machine import command_line, commit, device_named, machine, versions
from aviot.video import Scaling, Video, read_video

COLUMNS = 60  # of the text's bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", type=Path)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-frames", type=int, default=224)
    parser.add_argument("--decoder", default="auto")
    parser.add_argument("--sampling", default="times")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    device = device_named(given.device)
    lm = random_lm(given.size, device, torch.bfloat16 if device.type == "cuda" else torch.float32, 0)
    sampling = {"max_frames": given.max_frames, "sampling": given.sampling, "decoder": given.decoder}
    side = lm.backbone.image_size
    assert side is not None  # of LLaVA-Video's layout
    read = partial(read_video, given.video, transform=Scaling(side), **sampling)
    video = read()
    first_token = partial(ask, lm, Budget(ratio=given.ratio))

    def overlapped(trace: Trace) -> None:
        first_token(
            open_video(lm.backbone, partial(traced, read, trace), partial(encode, lm), Stopwatch(device), trace), trace
        )

    def in_turn(trace: Trace) -> None:
        first_token(encode(lm, traced(read, trace), trace), trace)

    def model_alone(trace: Trace) -> None:
        first_token(encode(lm, video, trace), trace)

    seconds = {
        "overlapped": clock(overlapped, device, given.repeats),
        "in turn": clock(in_turn, device, given.repeats),
        "decode": clock(partial(traced, read), device, given.repeats),
        "model": clock(model_alone, device, given.repeats),
    }
    trace = Trace()
    start = time.perf_counter()
    overlapped(trace)
    spans = [(span.name, span.start - start, span.end - start) for span in sorted(trace.spans, key=lambda s: s.start)]
    show(spans)
    limit = max(seconds["decode"], seconds["model"])
    report = {
        "command": command_line(),
        "commit": commit(),
        "machine": machine(device),
        "versions": versions(),
        "video": {"bytes": given.video.stat().st_size, "pictures": video.total, "frames": len(video)},
        "seconds": seconds,
        "limit": limit,
        "overlapped over limit": seconds["overlapped"] / limit,
        "overlapped over in turn": seconds["overlapped"] / seconds["in turn"],
        "pictures a second": video.total / seconds["decode"],
        "spans": spans,
    }
    if device.type == "cuda":
        report["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    print(json.dumps(report, indent=1))
    if given.plot is not None:
        draw(spans, given.plot)


def traced(read: Callable[..., Video], trace: Trace, progress: Callable | None = None) -> Video:
    with trace.span("decode"):
        return read(progress=progress)


def encode(lm: VideoLM, video: Video, trace: Trace | None = None) -> EncodedVideo:
    with (trace or Trace()).span("encode", lm.backbone.device):
        (encoded,) = lm.backbone.encode([video])
    return encoded


def ask(lm: VideoLM, budget: Budget, encoded: EncodedVideo, trace: Trace) -> None:
    """Compress for a question, and read the prompt up to the first token."""
    backbone, device = lm.backbone, lm.backbone.device
    with trace.span("compress", device):
        prompt = backbone.benchmark_prompt(encoded.video)
        videos = backbone.compress([encoded], [prompt], CompressionRequest(budget, record=False))
        inputs = backbone.place([prompt], videos)
    with trace.span("prefill", device), torch.inference_mode():
        arguments = inputs.arguments
        backbone.model.model.language_model(use_cache=True, **arguments).last_hidden_state[:, -1].float().cpu()


def clock(work: Callable[[Trace], object], device: torch.device, repeats: int) -> float:
    """Return the median seconds after two warm-ups."""
    taken = []
    for _ in range(2 + repeats):
        start = time.perf_counter()
        work(Trace(waits=False))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[2:])


def show(spans: list[tuple[str, float, float]]) -> None:
    whole = max(end for _, _, end in spans)
    for name, start, end in spans:
        first, last = (round(COLUMNS * at / whole) for at in (start, end))
        bar = (" " * first + "#" * max(1, last - first)).ljust(COLUMNS)
        print(f"{name:10} {bar} {1000 * start:8.1f} to {1000 * end:8.1f} ms", file=sys.stderr)


def draw(spans: list[tuple[str, float, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _, _ in spans))
    figure = Figure(figsize=(8, 0.5 + 0.5 * len(names)))
    axes = figure.add_subplot()
    for row, name in enumerate(names):
        bars = [(1000 * start, 1000 * (end - start)) for each, start, end in spans if each == name]
        axes.broken_barh(bars, (row - 0.4, 0.8), edgecolor="white")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds since the file was opened")
    figure.savefig(path, bbox_inches="tight", dpi=150)


if __name__ == "__main__":
    main()
