"""Neighbours in a row-major grid of cells, and edges between them: those downwards first, then those to the right."""

import triton
import triton.language as tl


@triton.jit
def ends_of(edge, rows, columns):
    """The two cells that an edge joins."""
    down = (rows - 1) * columns
    across = tl.maximum(columns - 1, 1)
    beyond = edge - down
    right = beyond // across * columns + beyond % across
    first = tl.where(edge < down, edge, right)
    return first, first + tl.where(edge < down, columns, 1)


@triton.jit
def neighbour(cell, rows, columns, SIDE: tl.constexpr):
    """The cell below, above, right or left (SIDE 0 to 3), the edge to it, and whether there is one."""
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


def edge_count(cells: tuple[int, int]) -> int:
    """Edges of a grid of rows x columns cells."""
    rows, columns = cells
    return (rows - 1) * columns + rows * (columns - 1)
