"""Triton functions that kernels of several operations call.

Edges of a row-major grid of cells are numbered: those downwards first, then those to the right.
"""

import torch
import triton
import triton.language as tl

SMALLEST = tl.constexpr(torch.finfo(torch.float32).tiny)  # floor under the argument of a logarithm
SMALLEST_NORM = tl.constexpr(1e-8)


@triton.jit
def at_least(x, floor):
    """Return the larger of the two, and NaN for NaN, for which `tl.maximum` returns the floor on a GPU."""
    return tl.where(x < floor, floor, x)


@triton.jit
def round_half_even(x):
    """Round to the nearest whole number, halves to even; for 0 <= x < 2^31 in float64."""
    up = tl.floor(x + 0.5)
    whole = up.to(tl.int32)
    return tl.where((up - x == 0.5) & (whole % 2 == 1), whole - 1, whole)


@triton.jit
def segment_bounds(budgets, video, segment, longest, full, M, MB: tl.constexpr):
    """Return first source, source count, first support and support count of a segment."""
    m = tl.arange(0, MB)
    given = tl.load(budgets + video * M + m, mask=m < M, other=0).to(tl.int32)
    first = tl.sum(tl.where(m < segment, given, 0), 0)
    k = tl.sum(tl.where(m == segment, given, 0), 0)
    start = segment * longest - tl.maximum(segment - full, 0)
    return start, longest - tl.where(segment >= full, 1, 0), first, k


@triton.jit
def uniform_source(j, n, k):
    """Return round(linspace(0, n - 1, k))[j] as torch computes it in float32: every operation rounded on its own.

    Each product, difference and quotient of float32 is taken in float64 and rounded once, which gives the same bits;
    contracting two of them would not.
    """
    last, steps = (n - 1).to(tl.float64), tl.maximum(k - 1, 1)
    stride = (last / steps.to(tl.float64)).to(tl.float32).to(tl.float64)
    front = (stride * j.to(tl.float64)).to(tl.float32)
    behind = (stride * (k - 1 - j).to(tl.float64)).to(tl.float32)
    back = (last - behind.to(tl.float64)).to(tl.float32)
    within = tl.where(j < k // 2, front, back)
    return tl.where(k == 1, 0, round_half_even(tl.maximum(within, 0.0).to(tl.float64)))


@triton.jit
def own_segment(regions, budgets, longest, full, M, MB: tl.constexpr):
    """Return region (among all videos'), video and `segment_bounds` of the segment that this program works on."""
    segment, region = tl.program_id(0) % M, (tl.program_id(0) // M).to(tl.int64)
    video = region // regions
    start, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    return region, video, start, n, first, k


@triton.jit
def level_value(region, VALUES: tl.constexpr, OFFSETS: tl.constexpr, LEVELS: tl.constexpr):
    """Return the value of the granularity that a region belongs to."""
    value = VALUES[0]
    for level in tl.static_range(1, LEVELS):
        value = tl.where(region >= OFFSETS[level], VALUES[level], value)
    return value


@triton.jit
def gelu(x):
    """Return x Phi(x), by the error function."""
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_slope(x):
    """Return the derivative of `gelu`, Phi(x) + x phi(x)."""
    return 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)


@triton.jit
def plogp(p):
    """Return p log p with 0 log 0 = 0."""
    return p * tl.log(tl.maximum(p, SMALLEST))


@triton.jit
def edge_ends(edge, rows, columns):
    """Return the two cells that an edge joins."""
    down = (rows - 1) * columns
    across = tl.maximum(columns - 1, 1)
    beyond = edge - down
    right = beyond // across * columns + beyond % across
    first = tl.where(edge < down, edge, right)
    return first, first + tl.where(edge < down, columns, 1)


@triton.jit
def neighbour(cell, rows, columns, SIDE: tl.constexpr):
    """Return the cell below, above, right or left (SIDE 0 to 3), the edge to it, and True if there is one."""
    row, column = cell // columns, cell % columns
    if SIDE == 0:
        other, edge, there = cell + columns, cell, row < rows - 1
    elif SIDE == 1:
        other, edge, there = cell - columns, cell - columns, row > 0
    else:
        before = (rows - 1) * columns + row * (columns - 1) + column
        if SIDE == 2:
            other, edge, there = cell + 1, before, column < columns - 1
        else:
            other, edge, there = cell - 1, before - 1, column > 0
    return other, edge, there
