"""The order of a video's tokens in the prompt, and their positions in rotary embeddings of three axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import TIME_DIGITS, Compressed, grid_positions

AfterVideo = Literal["grid", "maximum"]
"""Positions at which text continues after a video: past the longer side of its grid, or past its largest position."""

WEIGHT_DIGITS = 7  # significant decimal digits of weights in float32
TICK_ROUNDING = 1e-4  # of a tick, so that a time that is a whole number of them is not truncated to the one before


@dataclass(frozen=True)
class TokenLayout:
    """A video's tokens in groups of one time each: a whole support, or the tokens kept of one frame.

    `order` is the method's token behind each token. `positions` are seconds, row and column, on the CPU, in float64: in
    float32 the times of an hour-long video are off by more than text and ticks forgive. `extras` are mixed as the
    tokens are.
    """

    order: Int[Tensor, "n"]
    counts: tuple[int, ...]
    times: tuple[float, ...]
    positions: Float[Tensor, "n 3"]
    grid: tuple[int, int]
    frame_times: tuple[float, ...]
    extras: Mapping[str, Float[Tensor, "n d"]] = field(default_factory=dict)


def layout_of(made: Compressed, extras: Mapping[str, Float[Tensor, "T S d"]]) -> TokenLayout:
    """Group a method's tokens by time: supports as they are, single tokens by the frame nearest to each.

    The tokens of one frame are in the order of the uncompressed video, by row and column.
    """
    positions = _positions(made)
    if made.compression is not None:
        size = made.grid[0] * made.grid[1]
        order, counts = torch.arange(len(made)), (size,) * (len(made) // size)
    else:
        frames = made.nearest_frame.cpu()
        order = _sorted(frames.double(), positions[:, 1], positions[:, 2])
        counts = tuple(frames.unique(return_counts=True)[1].tolist())
    positions = positions[order]
    times = tuple(_mean_time(torch.ones(1, len(part)), part[None, :, 0]).item() for part in positions.split(counts))
    mixed = {name: _mixed(made, extra)[order.to(extra.device)] for name, extra in extras.items()}
    return TokenLayout(order, counts, times, positions, made.grid, made.frame_times, mixed)


def _sorted(*keys: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
    """Return the order by the first key, then the second, and so on."""
    order = torch.arange(len(keys[0]))
    for key in reversed(keys):
        order = order[key[order].argsort(stable=True)]
    return order


def _positions(made: Compressed) -> Float[Tensor, "n 3"]:
    """Return each token's time, the mean of its sources' times, and its row and column."""
    frame_times = torch.tensor(made.frame_times, dtype=torch.float64)
    if made.compression is not None:
        seconds = _mean_time(made.compression.provenance().frames().detach().cpu(), frame_times)
        cells = torch.stack(grid_positions(made.grid, torch.arange(made.grid[0] * made.grid[1])), 1).double()
        cells = cells.repeat(len(seconds), 1)
        return torch.cat((seconds.repeat_interleave(len(cells) // len(seconds))[:, None], cells), 1)
    positions = torch.cat((made.positions[:, :1], made.cells), 1).detach().cpu().double()
    sources = (made.mixture.indices // made.mixture.patches).cpu()
    positions[:, 0] = _mean_time(made.mixture.weights.detach().cpu(), frame_times[sources])
    return positions


def _mean_time(weights: Float[Tensor, "n m"], seconds: Float[Tensor, "*n m"]) -> Float[Tensor, "n"]:
    """Return weighted means of times; that of one time is this time, others are rounded as exactly as weights are."""
    used = weights > 0
    earliest = torch.where(used, seconds, torch.inf).amin(1)
    latest = torch.where(used, seconds, -torch.inf).amax(1)
    mean = (weights.double() * seconds).sum(1) / weights.double().sum(1)
    decimals = WEIGHT_DIGITS - len(str(int(latest.max())))
    return torch.where(earliest == latest, earliest, mean.round(decimals=decimals))


def nearest(time: float, frame_times: Sequence[float]) -> int:
    """Return the frame whose time is nearest; of two, the earlier one."""
    return min(range(len(frame_times)), key=lambda frame: (round(abs(frame_times[frame] - time), TIME_DIGITS), frame))


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
    seconds, at = layout.positions[:, 0].contiguous(), torch.tensor(layout.frame_times, dtype=torch.float64)
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
