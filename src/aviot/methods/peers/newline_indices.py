"""Indices in a sequence that has a newline token after every row of a frame's grid."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def with_newlines(index: Int[Tensor, "n"], columns: int) -> Int[Tensor, "n"]:
    """Return where tokens stand in the sequence with newlines, from their flat indices without."""
    return index + index // columns


def row_newlines(rows: Int[Tensor, "n"], columns: int) -> Int[Tensor, "n"]:
    """Return where the newlines of rows stand, rows being numbered through the whole video."""
    return rows * (columns + 1) + columns


def newlines_of_used_rows(index: Int[Tensor, "n"], columns: int) -> Int[Tensor, "m"]:
    """Return where the newlines of rows with at least one of the tokens stand."""
    return row_newlines((index // columns).unique(), columns)


def insert_newlines(
    index: Int[Tensor, "n"],
    tokens: Float[Tensor, "n C"],
    newlines: Int[Tensor, "m"],
    columns: int,
    newline: Float[Tensor, "C"],
) -> tuple[Int[Tensor, "n+m"], Float[Tensor, "n+m C"]]:
    """Return the places of tokens with these flat indices and of newlines, ascending, and what stands there."""
    places, order = torch.cat((with_newlines(index, columns), newlines)).sort()
    return places, torch.cat((tokens, newline.to(tokens).expand(len(newlines), -1)))[order]


def newlines_behind_frames(index: Int[Tensor, "n"], frames: int, grid: tuple[int, int]) -> Int[Tensor, "m"]:
    """Return, frame by frame, the places of its tokens and then those of all its newlines."""
    rows, columns = grid
    newlines = row_newlines(torch.arange(frames * rows, device=index.device), columns)
    places = torch.cat((with_newlines(index, columns), newlines))
    return places[(places // (rows * (columns + 1))).argsort(stable=True)]
