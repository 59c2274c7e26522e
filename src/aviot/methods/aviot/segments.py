"""Contiguous temporal segments: N sources cut into M nearly equal runs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Segments:
    """N sources in M contiguous runs; the earlier ones take one more where N is not a multiple of M.

    Runs are padded to the longest, n = ceil(N / M), so that all of them are solved together. Shapes depend on N and M
    alone.
    """

    sources: int
    count: int

    @classmethod
    def of(cls, sources: int, supports: int, most: int) -> "Segments":
        """M = min(most, N, K) segments."""
        return cls(sources, min(most, sources, supports))

    @property
    def longest(self) -> int:
        """n, the sources of the longest segment."""
        return -(-self.sources // self.count)

    @property
    def full(self) -> int:
        """How many segments have the longest length."""
        return self.sources - (self.longest - 1) * self.count

    def sizes(self, device: torch.device) -> Int[Tensor, "M"]:
        """Sources in each segment."""
        return self.longest - (torch.arange(self.count, device=device) >= self.full).long()

    def starts(self, device: torch.device) -> Int[Tensor, "M"]:
        """Index of each segment's first source."""
        sizes = self.sizes(device)
        return sizes.cumsum(0) - sizes

    def mask(self, device: torch.device) -> Bool[Tensor, "M n"]:
        """True where the padded segments hold a source."""
        return torch.arange(self.longest, device=device) < self.sizes(device)[:, None]

    def split(self, x: Float[Tensor, "... N D"]) -> Float[Tensor, "... M n D"]:
        """Cut the source axis into padded segments; padding is zero."""
        whole = x[..., : self.full * self.longest, :].unflatten(-2, (self.full, self.longest))
        if self.full == self.count:
            return whole
        short = x[..., self.full * self.longest :, :].unflatten(-2, (self.count - self.full, self.longest - 1))
        return torch.cat((whole, F.pad(short, (0, 0, 0, 1))), -3)

    def join(self, x: Float[Tensor, "... M n"]) -> Float[Tensor, "... N"]:
        """Undo `split` on the last two axes, dropping the padding."""
        whole = x[..., : self.full, :].flatten(-2)
        if self.full == self.count:
            return whole
        return torch.cat((whole, x[..., self.full :, : self.longest - 1].flatten(-2)), -1)

    def merge(self, x: Float[Tensor, "... M n D"]) -> Float[Tensor, "... N D"]:
        """Undo `split`, dropping the padding."""
        whole = x[..., : self.full, :, :].flatten(-3, -2)
        if self.full == self.count:
            return whole
        return torch.cat((whole, x[..., self.full :, : self.longest - 1, :].flatten(-3, -2)), -2)

    def mean(self, values: Float[Tensor, "... N"]) -> Float[Tensor, "... M"]:
        """Average of one value a source over each segment."""
        return self.split(values[..., None]).sum((-2, -1)) / self.sizes(values.device)
