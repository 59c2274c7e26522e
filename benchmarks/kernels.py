"""Where a compression's time goes on a GPU, kernel by kernel. python benchmarks/kernels.py [--frames 224 --backward]

Prints one JSON line (eager and replayed milliseconds: median and slowest minus fastest; extra memory; with --backward
forward and backward) and then the profiler's table: microseconds, launches, name.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from aviot import Compressor, CompressorConfig
from aviot.methods.aviot.replay import Replays

ROWS = 25


def clock(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    for _ in range(4):
        work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return round(statistics.median(times), 2), round(max(times) - min(times), 2)


def extra_mib(work: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20)


def table(work: Callable[[], object]) -> None:
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        work()
        torch.cuda.synchronize()
    spent = defaultdict(list)
    for event in recorded.events():
        if str(event.device_type).endswith("CUDA"):
            spent[event.name].append(event.device_time)
    print(f"{sum(map(sum, spent.values())):.0f} us in {sum(map(len, spent.values()))} launches")
    for name, times in sorted(spent.items(), key=lambda item: -sum(item[1]))[:ROWS]:
        print(f"{sum(times):8.0f} {len(times):5d}  {name[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=224)
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--backward", action="store_true")
    a = parser.parse_args()
    torch.manual_seed(0)
    config = CompressorConfig()
    compressor, replays = Compressor(config).cuda().eval(), Replays()
    shape = (a.batch, a.frames, config.patches, config.dim)
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    asked = {"question": torch.randn(a.batch, config.dim, device="cuda", dtype=torch.bfloat16)}
    asked["relevance"] = torch.rand(a.batch, a.frames, device="cuda")

    def compressed(**inputs: torch.Tensor) -> torch.Tensor:
        return compressor(**inputs, ratio=a.ratio).features

    @torch.inference_mode()
    def forward() -> object:
        return compressor(x, **asked, ratio=a.ratio)

    @torch.inference_mode()
    def replay() -> object:
        return replays.run(compressed, {"x": x, **asked}, key=(a.ratio,), modules=(compressor,))

    def both() -> None:
        out = compressor(x.detach().requires_grad_(), **asked, ratio=a.ratio)
        (out.features.float().square().mean() + out.loss.sum()).backward()
        compressor.zero_grad(set_to_none=True)

    report = vars(a) | {"eager": clock(forward, a.repeats), "extra_mib": extra_mib(forward)}
    report["replayed"] = clock(replay, a.repeats)
    if a.backward:
        report |= {"both": clock(both, a.repeats), "both_extra_mib": extra_mib(both)}
    print(json.dumps(report | {"machine": torch.cuda.get_device_name(), "torch": torch.__version__}))
    table(both if a.backward else forward)


if __name__ == "__main__":
    main()
