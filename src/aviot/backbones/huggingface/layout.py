"""The order of a video's tokens in the prompt, and their positions in rotary embeddings of three axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import Compressed

AfterVideo = Literal["grid", "maximum"]
"""Where text continues after a video: past the longer side of its grid, or past its largest position."""

TICK_ROUNDING = 1e-4  # of a tick, so that a time that is a whole number of them is not truncated to the one before


@dataclass(frozen=True)
class TokenLayout:
    """A video's tokens in groups of one time each: a whole support, or the tokens kept of one frame.

    `order` is the method's token behind each token. `positions` are seconds, row and column, on the CPU. `extras` are
    mixed as the tokens are.
    """

    order: Int[Tensor, "n"]
    counts: tuple[int, ...]
    times: tuple[float, ...]
    positions: Float[Tensor, "n 3"]
    grid: tuple[int, int]
    frame_times: tuple[float, ...]
    extras: Mapping[str, Float[Tensor, "n d"]] = field(default_factory=dict)


def layout_of(made: Compressed, extras: Mapping[str, Float[Tensor, "T S d"]]) -> TokenLayout:
    """Group a method's tokens by time: supports as they are, single tokens by the frame nearest to each."""
    positions = made.positions.detach().float().cpu()
    if made.compression is not None:
        size = made.grid[0] * made.grid[1]
        order, counts = torch.arange(len(made)), (size,) * (len(made) // size)
    else:
        frames = made.nearest_frame.cpu()
        order = frames.argsort(stable=True)
        counts = tuple(frames.unique(return_counts=True)[1].tolist())
    positions = positions[order]
    times = tuple(part[:, 0].double().mean().item() for part in positions.split(list(counts)))
    mixed = {name: _mixed(made, extra)[order.to(extra.device)] for name, extra in extras.items()}
    return TokenLayout(order, counts, times, positions, made.grid, made.frame_times, mixed)


def _mixed(made: Compressed, extra: Float[Tensor, "T S d"]) -> Float[Tensor, "n d"]:
    """Mix an extra with the tokens' own coefficients; kept tokens are copied."""
    if made.compression is not None:
        return made.compression.mix(extra).flatten(0, 1)
    mixture, sources = made.mixture, extra.flatten(0, 1)
    if mixture.indices.shape[1] == 1:
        return sources[mixture.indices[:, 0]]
    return mixture.rebuild(sources).to(extra.dtype)


def ticks(layout: TokenLayout, coordinates: Sequence[float]) -> Int[Tensor, "n"]:
    """Return each token's temporal position, truncated as the families do.

    `coordinates` are those of the encoder's frames on the temporal axis; a mixture of frames lies between them as its
    time lies between theirs.
    """
    seconds, at = layout.positions[:, 0].double(), torch.tensor(layout.frame_times, dtype=torch.float64)
    axis = torch.tensor(coordinates, dtype=torch.float64)
    if len(at) == 1:
        return torch.zeros(len(seconds), dtype=torch.long)
    after = torch.bucketize(seconds, at, right=True).clamp(1, len(at) - 1)
    share = (seconds - at[after - 1]) / (at[after] - at[after - 1])
    passed = torch.lerp(axis[after - 1], axis[after], share)
    return (passed + TICK_ROUNDING).floor().clamp_min(0).long()


def rope_positions(
    length: int, runs: Sequence[tuple[int, int]], offsets: Int[Tensor, "n 3"], extent: int, after: AfterVideo
) -> Int[Tensor, "3 length"]:
    """Return temporal, row and column positions of a prompt; `runs` are first index and number of visual tokens.

    Text counts on by one. A run's tokens stand at the position after the text before it plus their offsets.
    """
    positions = torch.empty(3, length, dtype=torch.long)
    position = place = used = 0
    for start, count in runs:
        text = start - place
        positions[:, place:start] = torch.arange(text) + position
        position += text
        here = offsets[used : used + count]
        positions[:, start : start + count] = here.T + position
        position += extent if after == "grid" else int(here.max()) + 1
        place, used = start + count, used + count
    positions[:, place:] = torch.arange(length - place) + position
    return positions


def runs_of(at: Int[Tensor, "n"]) -> list[tuple[int, int]]:
    """Return first index and length of each run of consecutive indices."""
    if not len(at):
        return []
    breaks = (torch.nonzero(at.diff() != 1)[:, 0] + 1).tolist()
    return [(int(at[first]), last - first) for first, last in pairwise([0, *breaks, len(at)])]
