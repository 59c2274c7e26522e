"""Shared by the launches of several operations: shape cache, side stream, plan buffers and region tables."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from itertools import accumulate
from types import TracebackType
from typing import TypeVar

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.segments import Layout
from aviot.ot.sinkhorn import COUNTS

# Like `sinkhorn.COUNTS`, for kernels over grids of cells: a kernel is not compiled again for other values of these.
CELL_COUNTS = (
    *("height", "width", "rows", "columns", "fine_rows", "fine_columns"),
    *("fine_offset", "branch", "edge_offset", "edges"),
)
grid_kernel = partial(triton.jit, do_not_specialize=COUNTS + CELL_COUNTS)
Result = TypeVar("Result")


def shape_cache(make: Callable[..., Result]) -> Callable[..., Result]:
    """Cache shape-only tensors that must outlive CUDA-graph capture.

    Captured graphs read them at their addresses, so results are never dropped. A tensor that is first built inside a
    capture would belong to that graph, so that raises.
    """

    @cache
    @wraps(make)
    @torch.inference_mode(False)
    def cached(*arguments: object) -> Result:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("compress once before capturing a graph of it: the first call makes tables and kernels")
        return make(*arguments)

    return cached


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class SideStream:
    """A second CUDA stream: launches inside its `with` block run concurrently with later ones, until `wait`.

    The tensors they read and write belong to the main stream: allocated before the block and alive until the wait.
    Without a GPU the launches run in order.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = _second_stream(device) if device.type == "cuda" else None
        self._switch = torch.cuda.stream(self._stream)  # does nothing for None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._switch.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._switch.__exit__(kind, error, trace)

    def wait(self) -> None:
        """Make the current stream wait for the launches."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def row_pitch(layout: Layout) -> int:
    """Return the stride of rows: a multiple of 16, so that they are read four numbers at a time."""
    return 16 * triton.cdiv(layout.segments.longest, 16)


@dataclass(frozen=True)
class PlanBuffers:
    """Rows, mass and entropy of every region of every granularity, one after the other, coarse to fine."""

    rows: Float[Tensor, "B regions K n"]  # `row_pitch` apart
    mass: Float[Tensor, "B regions K"]
    entropy: Float[Tensor, "B regions K"]  # of each row, over log N

    @classmethod
    def empty(cls, layout: Layout, regions: int) -> "PlanBuffers":
        """Allocate them, uninitialised."""
        shape = (len(layout.budgets), regions, layout.supports)
        rows = torch.empty((*shape, row_pitch(layout)), device=layout.device)
        return cls(
            rows[..., : layout.segments.longest],
            torch.empty(shape, device=layout.device),
            torch.empty(shape, device=layout.device),
        )


def empty_rows_like(rows: Float[Tensor, "B regions K n"]) -> Float[Tensor, "B regions K n"]:
    """Allocate rows of the same shape and strides."""
    return torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device=rows.device)


@dataclass(frozen=True)
class RegionTables:
    """Index tables that depend on the partitions alone; regions are numbered over all granularities."""

    regions: Int[Tensor, "L S"]  # of every patch at every granularity
    groups: Int[Tensor, "G P"]  # the patches that share their region at every granularity; -1 where a group has fewer
    parents: tuple[Int[Tensor, "R"] | None, ...]  # of every region; None for the whole frame
    codes: Float[Tensor, "regions code"]  # of the regions' positions; zero for the whole frame


@shape_cache
def region_tables(partitions: tuple[Partition, ...], bands: int, device: torch.device) -> RegionTables:
    """Return the tables of some partitions on a device."""
    offsets = region_offsets(partitions)
    parents: list[Tensor | None] = [None]
    like = torch.empty(0, device=device)
    codes = [like.new_zeros((1, 4 * bands))]
    for depth in range(1, len(partitions)):
        parents.append((partitions[depth].parents(partitions[depth - 1], device) + offsets[depth - 1]).int())
        codes.append(partitions[depth].position_code(bands, like))
    regions = patch_regions(partitions, device)
    return RegionTables(regions, patch_groups(regions), tuple(parents), torch.cat(codes))


def region_offsets(partitions: Sequence[Partition]) -> list[int]:
    """Return each granularity's first region among all."""
    return list(accumulate((each.count for each in partitions[:-1]), initial=0))


def patch_regions(partitions: Sequence[Partition], device: torch.device) -> Int[Tensor, "L S"]:
    """Return the region that holds each patch at every granularity, numbered over all of them, coarse to fine."""
    offsets = region_offsets(partitions)
    regions = [each.region_of_patch(device) + first for each, first in zip(partitions, offsets, strict=True)]
    return torch.stack(regions).int()


def patch_groups(regions: Int[Tensor, "L S"]) -> Int[Tensor, "G P"]:
    """Group the patches that share their region at every granularity; -1 pads groups smaller than the largest."""
    groups = defaultdict(list)
    for patch, own_regions in enumerate(zip(*regions.tolist(), strict=True)):
        groups[own_regions].append(patch)
    largest = max(map(len, groups.values()))
    padded = [members + [-1] * (largest - len(members)) for members in groups.values()]
    return torch.tensor(padded, dtype=torch.int32, device=regions.device)


def edge_count(cells: tuple[int, int]) -> int:
    """Return the number of edges between neighbours in a grid of rows x columns cells."""
    rows, columns = cells
    return (rows - 1) * columns + rows * (columns - 1)
