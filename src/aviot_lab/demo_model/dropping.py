"""Random patterns of missing tokens over space and time, for the task "dropped" of the curriculum."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from aviot.scenes.draws import Draws

Pattern = Literal["tokens", "frames", "blocks"]

PATTERNS: tuple[Pattern, ...] = ("tokens", "frames", "blocks")
MOST_DROPPED = 0.95
LONGEST_BLOCK = 16  # frames


def draw_kept(draws: Draws, frames: int, grid: tuple[int, int]) -> Int[Tensor, "n"]:
    """Return the flat indices of the tokens that stay, ascending (frame * patches + patch).

    The share dropped is uniform between 0 and `MOST_DROPPED`. Tokens leave one by one, in whole frames, or in blocks of
    some frames, rows and columns; the last block may leave in part. Only whole numbers decide, so the pattern is the
    same on any machine.
    """
    rows, columns = grid
    total = frames * rows * columns
    count = max(1, round((1 - draws.uniform(0, MOST_DROPPED)) * total))
    blocks = _blocks(draws, draws.pick(PATTERNS), frames, grid)
    names, number = blocks.unique(return_inverse=True)
    rank = torch.tensor(draws.shuffled(range(len(names))))[number]
    return rank.argsort(stable=True)[:count].sort().values


def _blocks(draws: Draws, pattern: Pattern, frames: int, grid: tuple[int, int]) -> Int[Tensor, "n"]:
    """Return for each token a number that its block has alone; blocks of a drawn size begin at a drawn offset."""
    rows, columns = grid
    if pattern == "tokens":
        return torch.arange(frames * rows * columns)
    if pattern == "frames":
        sizes, starts = (1, rows, columns), (0, 0, 0)
    else:
        sizes = (draws.between(1, min(frames, LONGEST_BLOCK)), draws.between(1, rows), draws.between(1, columns))
        starts = (draws.below(sizes[0]), draws.below(sizes[1]), draws.below(sizes[2]))
    time, row, column = (
        (torch.arange(length) + start) // size
        for length, start, size in zip((frames, *grid), starts, sizes, strict=True)
    )
    most = max(frames, rows, columns) + 2
    return ((time[:, None, None] * most + row[:, None]) * most + column).flatten()
