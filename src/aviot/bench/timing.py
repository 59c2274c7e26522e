"""How long a piece of work takes, and how much memory it needs beside what was there."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

MIB = 2**20
T = TypeVar("T")
Work = Callable[[], object]


@dataclass(frozen=True)
class Measurement:
    """Median over the repeats, and the spread: the slowest repeat minus the fastest.

    `peak_extra_mib` is the most memory the work held at once beyond what was allocated before it. PyTorch counts that
    on a GPU only; on a CPU it is None.
    """

    median_ms: float
    spread_ms: float
    repeats: int
    peak_extra_mib: float | None = None


@dataclass(frozen=True)
class NotMeasured:
    """A figure that is not there, and why."""

    not_measured: str


Part = Measurement | NotMeasured


def measure(
    work: Work,
    device: torch.device,
    *,
    warmup: int,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Run `work` `warmup` times unseen, then time each of `repeats` runs with the device idle before and after."""
    for _ in range(warmup):
        work()
    on_gpu = device.type == "cuda"
    before = 0
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    spent = [_once(work, device, clock) for _ in range(repeats)]
    peak = (torch.cuda.max_memory_allocated(device) - before) / MIB if on_gpu else None
    return Measurement(statistics.median(spent), max(spent) - min(spent), repeats, peak)


def attempt(work: Callable[[], T]) -> T | NotMeasured:
    """What the work returns, or the remark that the GPU's memory did not suffice for it."""
    try:
        return work()
    except torch.OutOfMemoryError:
        pass  # left before anything else is done: the error's traceback keeps tensors alive
    torch.cuda.empty_cache()
    return NotMeasured("out of memory")


def _once(work: Work, device: torch.device, clock: Callable[[], float]) -> float:
    """Milliseconds of one run."""
    start = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1000 * (clock() - start)
