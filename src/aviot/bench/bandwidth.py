"""The memory's speed, measured here, and how few bytes a compression could do with."""

from itertools import pairwise

import torch

from aviot.bench.timing import Measurement, Part, measure

GPU_COPY = 2**30  # bytes; far beyond any cache, a third of a millisecond on a current GPU
CPU_COPY = 2**27


def copy_bandwidth(device: torch.device, *, warmup: int, repeats: int) -> float:
    """Bytes a second of a large copy on the device, those read and those written together."""
    size = GPU_COPY if device.type == "cuda" else CPU_COPY
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = measure(lambda: target.copy_(source), device, warmup=warmup, repeats=repeats)
    return 2 * size / (copied.median_ms / 1000)


def fewest_bytes(path: tuple[int, ...], patches: int, dim: int, element_size: int) -> int:
    """Bytes that compressing one video along `path` has to move, whatever the implementation.

    The first stage reads its T frames twice (a plan needs all of them before the first can be mixed) and writes its
    output; each later stage reads its input once and writes its output. Everything in the features' own element size:
    (2 T_0 + T_1) + (T_1 + T_2) + ..., times S D and the bytes of an element. A path of one stage count moves nothing.
    """
    if len(path) < 2:
        return 0
    frames = path[0] + sum(before + after for before, after in pairwise(path))
    return frames * patches * dim * element_size


def bandwidth_share(moved: int, part: Part, bandwidth: float) -> float | None:
    """Bytes moved over the time it took, as a share of the copy's speed; None where nothing was measured or moved."""
    if not isinstance(part, Measurement) or not moved or not part.median_ms:
        return None
    return moved / (part.median_ms / 1000) / bandwidth
