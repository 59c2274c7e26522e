"""Time one compression. python benchmarks/compress.py --frames 64 --ratio 4 [--device cuda --dtype bfloat16 --backward]

Prints one line of JSON: median and spread in milliseconds over the repeats, after a warm-up, and peak extra memory on a
GPU. On shared CPUs compare runs of one session only.
"""

import argparse
import json
import platform
import statistics
import time

import torch

from aviot import Compressor, CompressorConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    device, dtype = torch.device(a.device), getattr(torch, a.dtype)
    torch.manual_seed(0)
    config = CompressorConfig()
    compressor = Compressor(config).to(device)
    x = torch.randn(a.batch, a.frames, config.patches, config.dim).to(device, dtype).requires_grad_(a.backward)
    question = torch.randn(a.batch, config.dim).to(device, dtype)
    relevance = torch.rand(a.batch, a.frames, device=device)

    def once() -> None:
        with torch.set_grad_enabled(a.backward):
            out = compressor(x, question=question, relevance=relevance, ratio=a.ratio)
            if a.backward:
                (out.features.float().square().mean() + out.loss.sum()).backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    once()
    base = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
    times = []
    for _ in range(a.repeats):
        start = time.perf_counter()
        once()
        times.append(1000 * (time.perf_counter() - start))
    report = vars(a) | {"median_ms": round(statistics.median(times), 1), "spread_ms": round(max(times) - min(times), 1)}
    if device.type == "cuda":
        report["extra_mib"] = round((torch.cuda.max_memory_allocated() - base) / 2**20)
        report["machine"] = torch.cuda.get_device_name()
    else:
        report["machine"] = f"{platform.machine()}, {torch.get_num_threads()} threads"
    print(json.dumps(report | {"torch": torch.__version__}))


if __name__ == "__main__":
    main()
