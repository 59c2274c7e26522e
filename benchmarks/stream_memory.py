"""Memory and time per frame of a stream's memory, over millions of synthetic frames.

Features that wander and jump are pushed through a `SupportBank`; the script prints the peak memory and the processor
time of every tenth of the stream, and the ratios that should stay near one: the last tenth's time over the second's,
and the peak at the end over that after the first tenth. It exits with code 1 if they are above --most-time or
--most-memory.

    python benchmarks/stream_memory.py --frames 2000000
"""

import argparse
import resource
import sys
import time

import torch

from aviot.streaming import FrameRange, SupportBank
from aviot.streaming.bank import FEATURES

BATCH = 8
BLOCK = 4096  # frames of features that are drawn at a time, once; each later block moves them by a constant


def push(bank: SupportBank, first: int, count: int, features: torch.Tensor) -> float:
    """Push frames and return the processor seconds of the bank's own work."""
    spent = 0.0
    for start in range(first, first + count, BATCH):
        place, shift = start % BLOCK, 3.0 * (start // BLOCK % 7)
        batch = features[place : place + BATCH] + shift
        records = [FrameRange.frame(i, 15 * i, i / 2) for i in range(start, start + len(batch))]
        begin = time.process_time()
        bank.add({FEATURES: batch}, records)
        spent += time.process_time() - begin
    return spent


def peak() -> int:
    """Return the largest resident memory of this process so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Push all frames and print one line per tenth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--supports", type=int, default=64)
    parser.add_argument("--patches", type=int, default=4)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--most-time", type=float, default=1.1)
    parser.add_argument("--most-memory", type=float, default=1.02)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(BLOCK, arguments.patches, arguments.width, generator=generator)
    steps[::200] *= 30
    features = steps.cumsum(0) / 30
    bank = SupportBank(arguments.supports, arguments.supports // 4, {FEATURES: features[:1]})
    tenth = arguments.frames // 10 // BATCH * BATCH
    seconds, peaks = [], []
    for part in range(10):
        seconds.append(push(bank, part * tenth, tenth, features))
        peaks.append(peak())
        rate = 1e6 * seconds[-1] / tenth
        print(f"{(part + 1) * tenth:>12,} frames  {rate:7.1f} us each  peak {peaks[-1] / 1024:,.1f} MiB", flush=True)
    times, memory = seconds[9] / seconds[1], peaks[9] / peaks[0]
    oldest = bank.view().records[0].count
    print(f"time, last tenth over second: {times:.3f}; peak memory, end over first tenth: {memory:.4f}")
    print(f"{bank.merges:,} merges; the oldest support is the mean of {oldest:,} frames; bank of {bank.nbytes:,} bytes")
    sys.exit(times > arguments.most_time or memory > arguments.most_memory)


if __name__ == "__main__":
    main()
