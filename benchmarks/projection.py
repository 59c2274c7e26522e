"""The projector's way to frame means and to tokens, in variants. python benchmarks/projection.py [--frames 224]

One JSON line a variant, milliseconds replayed as a CUDA graph, median and slowest minus fastest: the library's product
alone, the activation's mean alone with tiles of several sizes, both with several numbers of frames at a time, product
and mean in one Triton kernel that never writes the hidden layer, and the connector, again by frames at a time.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from aviot.backbones.llava_video import connector as module
from aviot.backbones.llava_video import kernels
from aviot.backbones.llava_video.connector import Connector
from aviot.backbones.llava_video.kernels import gelu

PATCHES, DIM, WIDTH, GRID = 729, 1152, 3584, (27, 27)
FUSED = (  # rows, columns and depth of a tile, warps, stages
    (128, 128, 64, 4, 3),  # two programs a multiprocessor: one activates while the other multiplies
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 4),
)


@triton.jit
def _mean_of_tile(acc, bias, parts, tile, column, count, patches, width, BM: tl.constexpr, BN: tl.constexpr):
    """gelu(acc + bias) summed over the tile's rows: those of the frame it starts in, and those of the next."""
    n = column * BN + tl.arange(0, BN)
    active = gelu(acc + tl.load(bias + n, mask=n < width, other=0.0).to(tl.float32)[None, :])
    end = ((tile * BM) // patches + 1) * patches
    to = parts + tile * 2 * width + n
    if end >= (tile + 1) * BM:
        tl.store(to, tl.sum(active, 0), mask=n < width)
    else:
        row = tile * BM + tl.arange(0, BM)
        tl.store(to, tl.sum(tl.where((row < end)[:, None], active, 0.0), 0), mask=n < width)
        rest = (row >= end) & (row < count)
        tl.store(to + width, tl.sum(tl.where(rest[:, None], active, 0.0), 0), mask=n < width)


@triton.jit
def _project_mean(
    x,
    weight,
    bias,
    parts,
    count,
    patches,
    width,
    dim,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One tile of the hidden layer, activated and summed; neighbouring programs share their rows of x."""
    columns = tl.cdiv(width, BN)
    tile, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, dim, BK, num_stages=STAGES):
        acc = tl.dot(x.load([tile * BM, k]), weight.load([column * BN, k]).T, acc)
    _mean_of_tile(acc, bias, parts, tile, column, count, patches, width, BM, BN)


@triton.jit
def _gather(parts, means, patches, width, BM: tl.constexpr, BN: tl.constexpr):
    """A frame's mean from the tiles that hold rows of it."""
    frame, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for tile in range((frame * patches) // BM, ((frame + 1) * patches - 1) // BM + 1):
        later = (tile * BM < frame * patches).to(tl.int32)
        total += tl.load(parts + (tile * 2 + later) * width + n, mask=n < width, other=0.0)
    tl.store(means + frame * width + n, total / patches, mask=n < width)


def fused_mean(x: Tensor, weight: Tensor, bias: Tensor, bm: int, bn: int, bk: int, warps: int, stages: int) -> Tensor:
    """mean_s gelu(W x_ts + b) of every frame [T,d], the hidden layer only on chip."""
    frames, patches, dim = x.shape
    width, count = len(weight), frames * patches
    tiles = triton.cdiv(count, bm)
    parts = torch.empty((tiles, 2, width), device=x.device)
    rows, columns = (
        TensorDescriptor.from_tensor(x.flatten(0, 1), [bm, bk]),
        TensorDescriptor.from_tensor(weight, [bn, bk]),
    )
    programs = tiles * triton.cdiv(width, bn)
    sizes = {"BM": bm, "BN": bn, "BK": bk, "STAGES": stages}
    _project_mean[(programs,)](rows, columns, bias, parts, count, patches, width, dim, **sizes, num_warps=warps)
    means = torch.empty((frames, width), device=x.device, dtype=x.dtype)
    _gather[(frames, triton.cdiv(width, 256))](parts, means, patches, width, BM=bm, BN=256)
    return means


def replayed(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and spread in milliseconds of the work as a graph, by the device's own clock."""
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times[2:]), 3), round(max(times[2:]) - min(times[2:]), 3)


def tell(name: str, work: Callable[[], object], repeats: int, **more: object) -> None:
    try:
        median, spread = replayed(work, repeats)
        print(json.dumps({"variant": name, "ms": median, "spread": spread} | more), flush=True)
    except Exception as error:  # a variant that this machine cannot run leaves the others
        print(json.dumps({"variant": name, "failed": f"{type(error).__name__}: {error}"[:200]}), flush=True)


def mean_in_tiles(hidden: Tensor, patches: int, channels: int, warps: int) -> Tensor:
    frames, count, width = hidden.shape
    means = hidden.new_empty((frames, width))
    grid = (frames, triton.cdiv(width, channels))
    kernels._mean[grid](hidden, means, count, width, SB=patches, DB=channels, num_warps=warps)
    return means


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=224)
    parser.add_argument("--supports", type=int, default=56)
    parser.add_argument("--repeats", type=int, default=20)
    a = parser.parse_args()
    torch.manual_seed(0)
    connector = Connector(DIM, WIDTH, GRID, 2).to("cuda", torch.bfloat16)
    x = torch.randn(a.frames, PATCHES, DIM, device="cuda", dtype=torch.bfloat16)
    weight, bias = connector.projector[0].weight, connector.projector[0].bias
    hidden = connector._hidden(x[: a.supports])
    share = a.frames / a.supports
    tell("product alone", lambda: connector._hidden(x[: a.supports]), a.repeats, times=share)
    for tile in ((16, 128, 4), (32, 128, 4), (16, 256, 4), (32, 64, 4), (32, 256, 8)):
        tell("mean alone", lambda tile=tile: mean_in_tiles(hidden, *tile), a.repeats, tile=tile, times=share)
    tell("pool alone", lambda: kernels.gelu_pool(hidden, GRID, connector.pooled), a.repeats)
    expected = connector._mean(hidden).float()
    for frames in (8, 16, 32, 56, 112, 224):
        module.FRAMES_AT_ONCE = frames
        tell("product and mean", lambda: connector.frame_means(x), a.repeats, frames_at_once=frames)
    for sizes in FUSED:
        tell("one kernel", lambda sizes=sizes: fused_mean(x, weight, bias, *sizes), a.repeats, sizes=sizes)
        error = (fused_mean(x[: a.supports], weight, bias, *sizes).float() - expected).abs().max()
        print(json.dumps({"sizes": sizes, "largest difference": float(error), "of": float(expected.abs().max())}))
    for frames in (8, 28, 32, 56):
        module.FRAMES_AT_ONCE = frames
        tell("connector", lambda: connector(x[: a.supports]), a.repeats, frames_at_once=frames)
    print(json.dumps({"machine": torch.cuda.get_device_name(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
