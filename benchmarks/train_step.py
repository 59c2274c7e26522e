"""One training step of a 7B video language model with random weights. python benchmarks/train_step.py [--frames 64]

Forward, backward and optimizer of the paper's joint stage on one example: SigLIP frozen, everything else trained, the
decoder's activations computed again on the way back. Weights, gradients and both moments of a fused AdamW are bfloat16
(`--weights float32` keeps them in float32 and computes in bfloat16, which takes 122 GB before any activation).

One JSON object: milliseconds of a step and of its parts (medians), the most memory held, and AVIOT's share of both:
what a step takes more than one in which Uniform Keep picks as many frames. Needs a GPU; `--size tiny` runs anywhere.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from aviot.backbones.llava_video.modeling import AviotForConditionalGeneration
from aviot.bench.sizes import SIZES
from aviot.bench.workload import random_model
from aviot.utils.machine import commit, machine, versions

BEFORE, TIMES, QUESTION, ANSWER = 14, 7, 40, 120  # tokens: before the video, a frame's time, the question, its answer
STEP = 1000  # of training: the warm-ups are over


class Stopwatch:
    """Milliseconds of the parts of each step, the device idle before and after."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spent: dict[str, list[float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = self._now()
        yield
        self.spent.setdefault(name, []).append(1000 * (self._now() - start))

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def example(model: AviotForConditionalGeneration, frames: int, device: torch.device) -> dict[str, Any]:
    """Random frames, and a prompt as long as a chat about as many frames."""
    generator = torch.Generator(device).manual_seed(0)
    side = model.config.vision_config.image_size
    length = BEFORE + 1 + TIMES * frames + QUESTION + ANSWER
    ids = torch.randint(0, 1000, (1, length), generator=generator, device=device)
    ids[0, BEFORE] = model.config.video_token_id
    labels = ids.clone()
    labels[:, :-ANSWER] = -100
    pixels = torch.randint(0, 256, (frames, 3, side, side), generator=generator, device=device, dtype=torch.uint8)
    end = length - ANSWER
    span = torch.tensor([[end - QUESTION, end]], device=device)
    return {"input_ids": ids, "labels": labels, "pixel_values": pixels, "question_span": span}


def trained_model(size: str, device: torch.device, weights: torch.dtype) -> AviotForConditionalGeneration:
    model = random_model(SIZES[size], device, weights, seed=0).train()
    model.model.vision_tower.requires_grad_(False).to(torch.bfloat16)
    model.model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def measure(model: AviotForConditionalGeneration, given: dict[str, Any], optimizer: Any, how: dict[str, Any]) -> dict:
    """Medians over the steps after the first two, in which kernels are compiled and moments made."""
    device = model.device
    cast = torch.autocast(device.type, torch.bfloat16) if model.lm_head.weight.dtype == torch.float32 else nullcontext()
    watch, repeats = Stopwatch(device), how.pop("repeats")
    for number in range(2 + repeats):
        if number == 2:
            watch.spent.clear()
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
        with watch.part("step"):
            with watch.part("forward"), cast:
                out = model(**given, **how, step=STEP, logits_to_keep=given["input_ids"].shape[1], use_cache=False)
            with watch.part("backward"):
                out.loss.backward()
            with watch.part("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        if not torch.isfinite(out.loss):
            raise RuntimeError(f"the loss is {out.loss.item()}")
    found = {f"{name}_ms": round(statistics.median(spent), 1) for name, spent in watch.spent.items()}
    found["spread_ms"] = round(max(watch.spent["step"]) - min(watch.spent["step"]), 1)
    if device.type == "cuda":
        found["peak_gib"] = round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="7b")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--ratio", type=float, nargs="+", default=[2.0, 4.0, 10.0])
    parser.add_argument("--weights", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = trained_model(a.size, device, getattr(torch, a.weights))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-5, weight_decay=0.0, fused=True)
    given = example(model, a.frames, device)
    rows = []
    for ratio in a.ratio:
        row: dict[str, Any] = {"ratio": ratio}
        for name in ("uniform", "aviot"):
            row[name] = measure(model, given, optimizer, {"compressor": name, "ratio": ratio, "repeats": a.repeats})
        for share, key in (("aviot_share_of_time", "step_ms"), ("aviot_share_of_memory", "peak_gib")):
            if key in row["aviot"]:
                row[share] = round(1 - row["uniform"][key] / row["aviot"][key], 4)
        rows.append(row)
    print(
        json.dumps(
            {
                "size": a.size,
                "frames": a.frames,
                "weights": a.weights,
                "trained_weights": sum(weight.numel() for weight in weights),
                "text_tokens": given["input_ids"].shape[1] - 1,
                "steps": rows,
                "machine": machine(device),
                "versions": versions(),
                "commit": commit(),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
