"""Kernels that average patches, and finer regions, into regions."""

import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel


@grid_kernel
def average_patches(
    x, means, frames, dim, height, width, rows, columns, regions, offset, BN: tl.constexpr, BD: tl.constexpr
):
    """Average the patches of one region, a tile of frames and channels per program."""
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


@grid_kernel
def average_regions(
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
    """Average the finer regions inside one region, weighted by their patches; `size` is frames * channels."""
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
