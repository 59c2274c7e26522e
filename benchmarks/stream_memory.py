"""Memory and time per frame of a stream's memory, over millions of synthetic frames.

Features that wander and jump are pushed through a `SupportBank`; the script prints the peak memory and the processor
time of every tenth of the stream, and the ratios that should stay near one: the last tenth's time over the second's,
and the peak at the end over that after the first tenth. It exits with code 1 if they are above --most-time or
--most-memory. Since other processes change the speed of a shared machine, every 20th batch also goes through a bank
that is begun anew with each tenth, and times are compared relative to that bank's.

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
EVERY = 20  # batches, of which one goes through the young bank too
BLOCK = 4096  # frames of features that are drawn at a time, once; each later block moves them by a constant


def push(bank: SupportBank, young: SupportBank, first: int, count: int, features: torch.Tensor) -> tuple[float, float]:
    """Push frames; return the processor seconds per frame of the bank's own work, and of the young bank's."""
    spent, compared = 0.0, []
    for number, start in enumerate(range(first, first + count, BATCH)):
        place, shift = start % BLOCK, 3.0 * (start // BLOCK % 7)
        batch = features[place : place + BATCH] + shift
        spent += timed(bank, batch, start)
        if number % EVERY == 0:
            compared.append(timed(young, batch, len(compared) * BATCH))
    settled = compared[-(-young.capacity // BATCH) :]  # the young bank is full then
    return spent / count, sum(settled) / (len(settled) * BATCH)


def timed(bank: SupportBank, batch: torch.Tensor, first: int) -> float:
    """Return the processor seconds that a bank takes to add frames."""
    records = [FrameRange.frame(i, 15 * i, i / 2) for i in range(first, first + len(batch))]
    begin = time.process_time()
    bank.add({FEATURES: batch}, records)
    return time.process_time() - begin


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

    def empty() -> SupportBank:
        return SupportBank(arguments.supports, arguments.supports // 4, {FEATURES: features[:1]})

    bank = empty()
    tenth = arguments.frames // 10 // BATCH * BATCH
    seconds, peaks = [], []
    for part in range(10):
        own, young = push(bank, empty(), part * tenth, tenth, features)
        seconds.append((own, own / young))
        peaks.append(peak())
        line = f"{(part + 1) * tenth:>12,} frames  {1e6 * own:7.1f} us each  {own / young:.3f} of a young bank's"
        print(f"{line}  peak {peaks[-1] / 1024:,.1f} MiB", flush=True)
    raw, times = (last / second for last, second in zip(seconds[9], seconds[1], strict=True))
    memory, oldest = peaks[9] / peaks[0], bank.view().records[0].count
    print(f"time, last tenth over second: {raw:.3f}, relative to a young bank {times:.3f}")
    print(f"peak memory, end over first tenth: {memory:.4f}")
    print(f"{bank.merges:,} merges; the oldest support is the mean of {oldest:,} frames; bank of {bank.nbytes:,} bytes")
    sys.exit(times > arguments.most_time or memory > arguments.most_memory)


if __name__ == "__main__":
    main()
