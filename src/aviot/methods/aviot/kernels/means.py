"""Region means of all granularities: the finest from the features, the coarser from those where they nest."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.kept import kept
from aviot.methods.aviot.kernels.tables import offsets_of, patch_regions
from aviot.methods.aviot.regions import Partition
from aviot.ot.sinkhorn import COUNTS

FRAMES, CHANNELS = 8, 128  # of one tile
CELLS = (
    "height",
    "width",
    "rows",
    "columns",
    "fine_rows",
    "fine_columns",
    "fine_offset",
    "branch",
    "edge_offset",
    "edges",
)
cells = partial(triton.jit, do_not_specialize=COUNTS + CELLS)
BLOCK = 512  # values of one program that averages regions


@cells
def _from_patches(
    x, means, frames, dim, height, width, rows, columns, regions, offset, BN: tl.constexpr, BD: tl.constexpr
):
    """Mean over the patches of one region, a tile of frames and channels at a time."""
    tiles = tl.cdiv(frames, BN)
    video, tile = tl.program_id(1) // tiles, tl.program_id(1) % tiles
    row, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    n, d = tile * BN + tl.arange(0, BN), tl.program_id(2) * BD + tl.arange(0, BD)
    inside = (n < frames)[:, None] & (d < dim)[None, :]
    top, bottom = tl.cdiv(row * height, rows), tl.cdiv((row + 1) * height, rows)
    left, right = tl.cdiv(column * width, columns), tl.cdiv((column + 1) * width, columns)
    frame = (video * frames + n).to(tl.int64) * height * width * dim
    total = tl.zeros((BN, BD), tl.float32)
    for y in range(top, bottom):
        for z in range(left, right):
            place = frame[:, None] + ((y * width + z) * dim + d)[None, :]
            total += tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    region = video.to(tl.int64) * regions + offset + tl.program_id(0)
    count = ((bottom - top) * (right - left)).to(tl.float32)
    tl.store(means + (region * frames + n[:, None]) * dim + d[None, :], total / count, mask=inside)


@cells
def _from_regions(
    means,
    size,
    height,
    width,
    rows,
    columns,
    fine_rows,
    fine_columns,
    regions,
    offset,
    fine_offset,
    BLOCK: tl.constexpr,
):
    """Mean over the finer regions inside one region, each weighed by its patches; `size` is frames * channels."""
    row, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    video = tl.program_id(2).to(tl.int64)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    down, across = fine_rows // rows, fine_columns // columns
    total, count = tl.zeros((BLOCK,), tl.float32), 0
    for r in range(row * down, (row + 1) * down):
        tall = tl.cdiv((r + 1) * height, fine_rows) - tl.cdiv(r * height, fine_rows)
        for c in range(column * across, (column + 1) * across):
            wide = tl.cdiv((c + 1) * width, fine_columns) - tl.cdiv(c * width, fine_columns)
            source = (video * regions + fine_offset + r * fine_columns + c) * size
            total += tl.load(means + source + e, mask=e < size, other=0.0) * (tall * wide).to(tl.float32)
            count += tall * wide
    target = (video * regions + offset + tl.program_id(0)) * size
    tl.store(means + target + e, total / count.to(tl.float32), mask=e < size)


@cells
def _to_patches(
    gradient,
    beside,
    grad_x,
    region_of_patch,
    share,
    frames,
    patches,
    dim,
    regions,
    LEVELS: tl.constexpr,
    BESIDE: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    """Every patch's gradient: its regions' at all granularities, each over the region's patches, and what is beside."""
    tiles = tl.cdiv(frames, BN)
    tile, video = tl.program_id(1) % tiles, (tl.program_id(1) // tiles).to(tl.int64)
    patch = tl.program_id(0)
    n, d = tile * BN + tl.arange(0, BN), tl.program_id(2) * BD + tl.arange(0, BD)
    inside = (n < frames)[:, None] & (d < dim)[None, :]
    total = tl.zeros((BN, BD), tl.float32)
    for level in tl.static_range(LEVELS):
        region = tl.load(region_of_patch + level * patches + patch)
        source = ((video * regions + region) * frames + n)[:, None] * dim + d[None, :]
        total += tl.load(gradient + source, mask=inside, other=0.0) * tl.load(share + region)
    target = ((video * frames + n) * patches + patch)[:, None] * dim + d[None, :]
    if BESIDE:
        total += tl.load(beside + target, mask=inside, other=0.0).to(tl.float32)
    tl.store(grad_x + target, total, mask=inside)


_regions = kept(patch_regions)


@kept
def _shares(partitions: tuple[Partition, ...], device: torch.device) -> Float[Tensor, "regions"]:
    """One over the patches of every region."""
    return 1 / torch.cat([each.sizes(device) for each in partitions])


class RegionMeans(torch.autograd.Function):
    """`region_means` with its reverse pass, and the features themselves, for what else reads them.

    Their gradients then come together here and are added where the means' is spread, in one pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "B N S D"], partitions: tuple[Partition, ...]
    ) -> tuple[Float[Tensor, "B regions N D"], Float[Tensor, "B N S D"]]:
        """Means of every region."""
        ctx.partitions, ctx.like, ctx.shape = partitions, x.new_empty(0), x.shape
        ctx.set_materialize_grads(False)
        return region_means(partitions, x), x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        """Spread over the patches, and added to what came back beside."""
        gradient, beside = gradients
        if gradient is None:
            return beside, None
        gradient = gradient.contiguous()
        grad_x = ctx.like.new_empty(ctx.shape)
        batch, frames, patches, dim = ctx.shape
        grid = (patches, batch * triton.cdiv(frames, FRAMES), triton.cdiv(dim, CHANNELS))
        _to_patches[grid](
            gradient,
            gradient if beside is None else beside.contiguous(),
            grad_x,
            _regions(ctx.partitions, gradient.device),
            _shares(ctx.partitions, gradient.device),
            frames,
            patches,
            dim,
            gradient.shape[1],
            LEVELS=len(ctx.partitions),
            BESIDE=beside is not None,
            BN=FRAMES,
            BD=CHANNELS,
        )
        return grad_x, None


def region_means(partitions: Sequence[Partition], x: Float[Tensor, "B N S D"]) -> Float[Tensor, "B regions N D"]:
    """Means of every granularity's regions one after the other, coarse to fine, in float32."""
    batch, frames, _, dim = x.shape
    regions = sum(each.count for each in partitions)
    means = x.new_empty((batch, regions, frames, dim), dtype=torch.float32)
    offsets = offsets_of(partitions)
    for depth in reversed(range(len(partitions))):
        each, offset = partitions[depth], offsets[depth]
        finer = next((other for other in range(depth + 1, len(partitions)) if partitions[other].nests_in(each)), None)
        if finer is None:
            blocks = (each.count, batch * triton.cdiv(frames, FRAMES), triton.cdiv(dim, CHANNELS))
            _from_patches[blocks](
                x, means, frames, dim, *each.grid, *each.cells, regions, offset, BN=FRAMES, BD=CHANNELS
            )
        else:
            blocks = (each.count, triton.cdiv(frames * dim, BLOCK), batch)
            cells = (*each.grid, *each.cells, *partitions[finer].cells)
            _from_regions[blocks](means, frames * dim, *cells, regions, offset, offsets[finer], BLOCK=BLOCK)
    return means
