"""Requests a second of the server's own path on a GPU: encode, compress, continuous batch; random weights, no network.

    python benchmarks/serve_gpu.py -o benchmarks/results/h200/serve.json
    python benchmarks/serve_gpu.py --size tiny --device cpu --frames 8 --requests 1 -o tiny.json

Clients are threads, each of which asks one question after another, with answers of varying length. As in `aviot serve`,
one thread encodes, one compresses, at most `places + PROMPTS_AHEAD` prompts are compressed ahead of the decoder, and
`ContinuousEngine` decodes. Left out are HTTP, the parsing of requests, and the decoding of video files: videos are
random pixels. What is decoded means nothing, so its text is not made.

- shared: all clients ask about a few videos whose features the server has kept; every question is compressed anew
- own: every request brings a video, which is encoded first

Every row goes to the JSON file as soon as it is measured; the same command again measures the missing ones.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from aviot.backbones.base import Prompt
from aviot.bench.workload import random_lm, random_videos
from aviot.budget import Budget
from aviot.engine.continuous import PLACES, ContinuousEngine
from aviot.session import VideoLM, VideoSession
from aviot.utils.machine import command_line, commit, device_named, machine, versions
from aviot.video import Video

LENGTHS = (8, 16, 32)  # tokens of the answers, in turn
AHEAD = 4  # prompts that are compressed and wait for the decoder, as in `aviot.serve.answering`
VIDEOS = 4
WARMUPS = 3  # compile kernels, capture a graph, and replay it
FEWEST = 4  # requests of a run
WHOLE = Budget(keep=1.0)


class NoText:
    """A tokenizer for random weights, whose tokens mean nothing."""

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return ""


@dataclass
class ServerPath:
    """The server's path from a video and a question to the tokens of an answer."""

    lm: VideoLM
    engine: ContinuousEngine
    encoder: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    compressor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __post_init__(self) -> None:
        self.turns = threading.Semaphore(self.engine.places + AHEAD)

    def answer(self, about: Video | VideoSession, prompt: Prompt, budget: Budget | None, length: int) -> int:
        """Answer one question; return the number of tokens."""
        session = about if isinstance(about, VideoSession) else self.encoder.submit(self.lm.open, about).result()
        method = "none" if budget is None else "aviot"
        with self.turns:
            how = {"budget": budget or WHOLE, "method": method, "max_new_tokens": length}
            ready = self.compressor.submit(session.prepare, prompt, **how).result()
            return sum(len(piece.tokens) for piece in self.engine.pieces(ready.inputs, length, ready.reducing))


def measure(
    path: ServerPath, about: Sequence[Any], prompts: Sequence[Prompt], budget: Budget | None, asked: Any
) -> dict:
    """Have clients ask until all questions are answered; return what was measured."""
    clients, count = asked
    numbers, seconds, tokens, lock = iter(range(count)), [], [], threading.Lock()
    failed: list[BaseException] = []

    def client() -> None:
        while not failed:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            start = time.perf_counter()
            try:
                found = path.answer(
                    about[number % len(about)],
                    prompts[number % len(about)],
                    budget,
                    LENGTHS[number % len(LENGTHS)],
                )
            except BaseException as error:
                failed.append(error)
                return
            with lock:
                seconds.append(time.perf_counter() - start)
                tokens.append(found)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - start
    if failed:
        raise failed[0]
    seconds.sort()
    return {
        "requests": count,
        "seconds": round(whole, 3),
        "requests_per_second": round(count / whole, 3),
        "answer_tokens_per_second": round(sum(tokens) / whole, 1),
        "p50_seconds": round(statistics.median(seconds), 3),
        "p95_seconds": round(seconds[int(0.95 * len(seconds))], 3),
    }


def table(rows: Sequence[dict]) -> str:
    """Return requests a second, and those at a ratio over those without compression."""
    whole = {(row["load"], row["clients"]): row for row in rows if row["ratio"] is None}
    lines = ["| load | clients | ratio | requests/s | times the uncompressed | p50 s | p95 s |", "| --- " * 7 + "|"]
    for row in sorted(rows, key=lambda row: (row["load"] == "own", row["clients"], row["ratio"] or 0)):
        base = whole.get((row["load"], row["clients"]))
        times = "" if base is None else f"{row['requests_per_second'] / base['requests_per_second']:.2f}"
        ratio = "none" if row["ratio"] is None else f"{row['ratio']:g}"
        rate = f"{row['requests_per_second']:.2f}"
        values = (row["load"], row["clients"], ratio, rate, times, row["p50_seconds"], row["p95_seconds"])
        lines.append(f"| {' | '.join(map(str, values))} |")
    return "\n".join(lines)


def described(chosen: argparse.Namespace, device: torch.device, lm: VideoLM) -> dict[str, Any]:
    """Return what a result needs beside its rows."""
    return {
        "model": f"random weights, {chosen.size}",
        "dtype": str(next(lm.backbone.model.parameters()).dtype).removeprefix("torch."),
        "machine": machine(device),
        "versions": versions(),
        "commit": commit() or chosen.commit,
        "command": command_line(),
        "frames": chosen.frames,
        "answer_tokens": list(LENGTHS),
        "places": PLACES,
    }


def settings(chosen: argparse.Namespace) -> list[tuple[str, int, float | None]]:
    """Return load, clients and ratio of all rows, those that matter most first."""
    most = max(chosen.clients)
    listed = [("shared", clients) for clients in sorted(chosen.clients, reverse=True)] + [("own", most)]
    return [(load, clients, ratio) for load, clients in listed for ratio in (None, chosen.ratio)]


@torch.inference_mode()
def main() -> None:
    """Measure what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="7b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=2, help="of each client; at least 4 in all")
    parser.add_argument("--limit", type=float, default=100.0, help="start no run after so many seconds")
    parser.add_argument("--commit", help="of this code, where it is no checkout")
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args()
    begun = time.monotonic()
    device = device_named(chosen.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lm = random_lm(chosen.size, device, dtype, 0)
    path = ServerPath(lm, ContinuousEngine(lm.backbone.model, NoText(), places=PLACES))
    videos = random_videos(lm.backbone, VIDEOS, chosen.frames, 0)
    prompts = [lm.backbone.benchmark_prompt(video) for video in videos]
    sessions = [lm.open(video) for video in videos]
    found = json.loads(chosen.output.read_text()) if chosen.output.exists() else described(chosen, device, lm)
    rows = found.setdefault("rows", [])
    done = {(row["load"], row["clients"], row["ratio"]) for row in rows}
    for ratio in (None, chosen.ratio):
        for _ in range(WARMUPS):
            path.answer(sessions[0], prompts[0], None if ratio is None else Budget(ratio=ratio), 4)
    print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)
    for load, clients, ratio in settings(chosen):
        if (load, clients, ratio) in done or time.monotonic() - begun > chosen.limit:
            continue
        count = max(FEWEST, chosen.requests * clients)
        budget = None if ratio is None else Budget(ratio=ratio)
        about = sessions if load == "shared" else videos
        row = {"load": load, "clients": clients, "ratio": ratio}
        rows.append(row | measure(path, about, prompts, budget, (clients, count)))
        chosen.output.write_text(json.dumps(found, indent=2) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    path.engine.close()
    path.encoder.shutdown()
    path.compressor.shutdown()
    print(table(rows))


if __name__ == "__main__":
    main()
