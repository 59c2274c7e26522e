"""Measurements of time, peak memory and memory bandwidth."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from typing import TypeVar

import torch

CPU = torch.device("cpu")
MIB = 2**20
GPU_COPY = 2**30  # bytes; far larger than any cache, a third of a millisecond on a current GPU
CPU_COPY = 2**27
T = TypeVar("T")
Work = Callable[[], object]


@dataclass(frozen=True)
class Measurement:
    """The median over the repeats, and the spread: the slowest repeat minus the fastest.

    `peak_extra_mib` is the peak memory beyond what was allocated before the work. PyTorch counts it on a GPU only; on a
    CPU it is None.
    """

    median_ms: float
    spread_ms: float
    repeats: int
    peak_extra_mib: float | None = None


@dataclass(frozen=True)
class NotMeasured:
    """The reason why a measurement is missing."""

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
    """Time each of `repeats` runs of `work` after `warmup` untimed ones, with the device idle before and after each."""
    for _ in range(warmup):
        work()
    on_gpu = device.type == "cuda"
    before = 0
    if on_gpu:
        before = _reset_peak(device)
    spent = [_once(work, device, clock) for _ in range(repeats)]
    peak = (torch.cuda.max_memory_allocated(device) - before) / MIB if on_gpu else None
    return Measurement(statistics.median(spent), max(spent) - min(spent), repeats, peak)


def measure_on(
    inputs: Sequence[T], work: Callable[[T], object], device: torch.device, *, warmup: int, repeats: int
) -> Measurement:
    """Time `work` on one input after another, after `warmup` untimed runs, and at least one of each input.

    Taking inputs in turn leaves none of them in a cache from the run before. On a GPU the device's own events are
    timed, which leaves out the wait for the host after the last of them.
    """
    turns = cycle(partial(work, given) for given in inputs)
    for _ in range(max(warmup, len(inputs))):
        next(turns)()
    on_gpu = device.type == "cuda"
    before = _reset_peak(device) if on_gpu else 0
    once = _by_events if on_gpu else _once
    spent = [once(next(turns), device) for _ in range(repeats)]
    peak = (torch.cuda.max_memory_allocated(device) - before) / MIB if on_gpu else None
    return Measurement(statistics.median(spent), max(spent) - min(spent), repeats, peak)


def attempt(work: Callable[[], T]) -> T | NotMeasured:
    """Return the result of the work, or NotMeasured if the GPU's memory did not suffice."""
    try:
        return work()
    except torch.OutOfMemoryError:
        pass  # the memory is freed outside of this block, where the traceback no longer keeps tensors alive
    torch.cuda.empty_cache()
    return NotMeasured("out of memory")


def copy_bandwidth(device: torch.device, *, warmup: int, repeats: int) -> float:
    """Return the bytes per second of a large copy on the device, read and written bytes together."""
    size = GPU_COPY if device.type == "cuda" else CPU_COPY
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = measure(lambda: target.copy_(source), device, warmup=warmup, repeats=repeats)
    return 2 * size / (copied.median_ms / 1000)


def fewest_bytes(path: tuple[int, ...], patches: int, dim: int, element_size: int) -> int:
    """Return the bytes that compressing one video along `path` must move in any implementation.

    The first stage reads its T frames twice (a plan needs all of them before the first can be mixed) and writes its
    output; each later stage reads its input once and writes its output. In elements of the features' type this is
    (2 T_0 + T_1) + (T_1 + T_2) + ..., times S D. A path without stages moves nothing.
    """
    if len(path) < 2:
        return 0
    frames = path[0] + sum(before + after for before, after in pairwise(path))
    return frames * patches * dim * element_size


def bandwidth_share(moved: int, part: Part, bandwidth: float) -> float | None:
    """Return the bytes moved per second as a share of a copy's; None if nothing was measured or moved."""
    if not isinstance(part, Measurement) or not moved or not part.median_ms:
        return None
    return moved / (part.median_ms / 1000) / bandwidth


def _reset_peak(device: torch.device) -> int:
    """Start counting peak memory; return the bytes that are allocated now."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _by_events(work: Work, device: torch.device) -> float:
    """Return the milliseconds between an event before the work and one after it, on the device's own clock."""
    torch.cuda.synchronize(device)
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
    return start.elapsed_time(end)


def _once(work: Work, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the milliseconds of one run."""
    start = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1000 * (clock() - start)
