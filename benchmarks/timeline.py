"""The timeline of `aviot bench VIDEO` alone, for any decoder and mode of sampling, with random weights.

python benchmarks/timeline.py VIDEO --size 7b [--ratio 4 --repeats 5 --decoder auto --plot out.png] > out.json
"""

import argparse
from pathlib import Path

import torch

from aviot.bench.compressor import Setup
from aviot.bench.report import write_outputs
from aviot.bench.result import Result
from aviot.bench.timeline import measure_timeline
from aviot.bench.timing import copy_bandwidth
from aviot.bench.workload import random_lm
from aviot.utils.machine import command_line, commit, device_named, machine, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", type=Path)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--method", default="aviot")
    parser.add_argument("--ratio", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-frames", type=int, default=224)
    parser.add_argument("--decoder", default="auto")
    parser.add_argument("--sampling", default="times")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    device, warmup = device_named(given.device), 2
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lm = random_lm(given.size, device, dtype, 0)
    setup = Setup(
        device=device,
        dtype=dtype,
        warmup=warmup,
        repeats=given.repeats,
        bandwidth=copy_bandwidth(device, warmup=warmup, repeats=given.repeats),
        backward=False,
        seed=0,
    )
    sampling = {"max_frames": given.max_frames, "sampling": given.sampling, "decoder": given.decoder}
    timeline = measure_timeline(lm, given.video, setup, method=given.method, ratio=given.ratio, **sampling)
    result = Result(
        model=f"random weights, {given.size}",
        dtype=str(dtype).removeprefix("torch."),
        machine=machine(device),
        versions=versions(),
        commit=commit(),
        command=command_line(),
        seed=0,
        warmup=warmup,
        repeats=given.repeats,
        bandwidth_gb_per_s=setup.bandwidth / 1e9,
        checks=(),
        timeline=timeline,
    )
    write_outputs(result, None, given.plot, as_json=True)


if __name__ == "__main__":
    main()
