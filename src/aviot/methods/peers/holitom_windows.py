"""HoliTom's windows: runs of frames in which as many tokens as possible stay the same, by dynamic programming."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.methods.peers.segments import frame_cosines


@dataclass(frozen=True, eq=False)
class Windows:
    """A video divided into windows: their `lengths`, which sum to the number of frames, and what is static in each.

    A position is static in a window of two or more frames if each of its tokens is similar to the one before.
    `static_counts` sums up `static` on the host.
    """

    lengths: tuple[int, ...]
    static: Bool[Tensor, "G N"]
    static_counts: tuple[int, ...]

    @property
    def of_frames(self) -> Int[Tensor, "T"]:
        """The number of each frame's window."""
        device = self.static.device
        length = torch.tensor(self.lengths, device=device)
        return torch.arange(len(length), device=device).repeat_interleave(length, output_size=sum(self.lengths))

    @property
    def saved(self) -> int:
        """The number of tokens that averaging static positions over time removes."""
        return sum(still * (length - 1) for length, still in zip(self.lengths, self.static_counts, strict=True))

    def ratio(self, retention: float) -> float:
        """Return the share of the tokens left to keep, so that about `retention` of all tokens stay; at most 1."""
        total = sum(self.lengths) * self.static.shape[1]
        return min(retention / ((total - self.saved) / total), 1.0)

    def counts(self, ratio: float) -> tuple[np.ndarray, np.ndarray]:
        """Return for each window how many static tokens are left, and how many dynamic ones in each of its frames.

        Static counts are rounded, halves to even numbers; dynamic ones are rounded up.
        """
        still = np.asarray(self.static_counts)
        return np.rint(still * ratio).astype(np.int64), np.ceil((self.static.shape[1] - still) * ratio).astype(np.int64)

    def total(self, ratio: float) -> int:
        """Return the number of tokens that are left of the video."""
        static, dynamic = self.counts(ratio)
        return int(static.sum() + dynamic @ np.asarray(self.lengths))


def divide(x: Float[Tensor, "T N C"], threshold: float, longest: int) -> Windows:
    """Divide a video into windows of at most `longest` frames, so that most tokens are saved."""
    frames = torch.arange(len(x), device=x.device)
    runs = still_runs(frame_cosines(x, frames[:-1], frames[1:]) > threshold)
    lengths = best_lengths(tokens_saved(runs, min(len(x), longest)).cpu().numpy())
    length = torch.tensor(lengths, device=x.device)
    static = (runs[length.cumsum(0) - 1] >= (length - 1)[:, None]) & (length > 1)[:, None]
    return Windows(lengths, static, tuple(static.sum(1).tolist()))


def still_runs(still: Bool[Tensor, "T-1 N"]) -> Int[Tensor, "T N"]:
    """Return for how many steps up to each frame a position has been still, given whether it is in each step."""
    frames = torch.arange(len(still) + 1, device=still.device)[:, None]
    goes_on = torch.cat((still.new_zeros(1, still.shape[1]), still))
    return frames - torch.where(goes_on, 0, frames).cummax(0).values


def tokens_saved(runs: Int[Tensor, "T N"], longest: int) -> Int[Tensor, "T W"]:
    """Return how many tokens a window that ends at each frame saves, if it begins 0, 1, ... frames earlier."""
    ones = torch.ones_like(runs)
    of_length = runs.new_zeros(len(runs), longest).scatter_add_(1, runs.clamp_max(longest - 1), ones)
    at_least = of_length.flip(1).cumsum(1).flip(1)
    return at_least * torch.arange(longest, device=runs.device)


def best_lengths(saved: np.ndarray) -> tuple[int, ...]:
    """Return the lengths of windows that save most together; among equal divisions, the shorter last window."""
    frames, longest = saved.shape
    best = np.zeros(frames + 1, dtype=np.int64)  # of the frames before each one
    last = np.zeros(frames, dtype=np.int64)
    for frame in range(frames):
        most = min(frame + 1, longest)
        totals = best[frame + 1 - most : frame + 1][::-1] + saved[frame, :most]
        last[frame] = totals.argmax()
        best[frame + 1] = totals[last[frame]]
    lengths, end = [], frames
    while end:
        lengths.append(int(last[end - 1]) + 1)
        end -= lengths[-1]
    return tuple(reversed(lengths))
