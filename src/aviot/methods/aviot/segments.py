"""Contiguous temporal segments, and the layout of a stage's supports in them.

Two forms of the same K supports:

* packed, [.., K, ..]: the supports in temporal order, as the stage returns them;
* padded, [.., M, k, ..]: k slots per segment, as the solver takes them (k = the most any segment could be given).

A plan's row is stored over the n sources of the support's own segment, [.., K, n], zero where that is shorter than the
longest; dense, [.., K, N], over all sources.

Budgets live on the device and are never read by the host, so shapes depend on N and K alone.
"""

from dataclasses import dataclass
from functools import cached_property

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
        """Return M = min(most, N, K) segments."""
        return cls(sources, min(most, sources, supports))

    @property
    def longest(self) -> int:
        """n, the sources of the longest segment."""
        return -(-self.sources // self.count)

    @property
    def full(self) -> int:
        """The number of segments of the longest length."""
        return self.sources - (self.longest - 1) * self.count

    def sizes(self, device: torch.device) -> Int[Tensor, "M"]:
        """Return the number of sources in each segment."""
        return self.longest - (torch.arange(self.count, device=device) >= self.full).long()

    def starts(self, device: torch.device) -> Int[Tensor, "M"]:
        """Return the index of each segment's first source."""
        sizes = self.sizes(device)
        return sizes.cumsum(0) - sizes

    def mask(self, device: torch.device) -> Bool[Tensor, "M n"]:
        """Return True where the padded segments hold a source."""
        return torch.arange(self.longest, device=device) < self.sizes(device)[:, None]

    def split(self, x: Float[Tensor, "... N D"]) -> Float[Tensor, "... M n D"]:
        """Split the source axis into padded segments; padding is zero."""
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
        """Average one value per source over each segment."""
        return self.split(values[..., None]).sum((-2, -1)) / self.sizes(values.device)


@dataclass(frozen=True)
class Layout:
    """K supports distributed over segments by integer `budgets`, which sum to K with 1 <= budget <= segment size."""

    segments: Segments
    supports: int
    budgets: Int[Tensor, "B M"]

    @property
    def slots(self) -> int:
        """k, the most supports that one segment can have: the others have at least one each."""
        return min(self.segments.longest, self.supports - self.segments.count + 1)

    @property
    def device(self) -> torch.device:
        """Device of the budgets."""
        return self.budgets.device

    @cached_property
    def slot_mask(self) -> Bool[Tensor, "B M k"]:
        """True where a slot holds a support."""
        return torch.arange(self.slots, device=self.device) < self.budgets[..., None]

    @cached_property
    def identity(self) -> Bool[Tensor, "B M"]:
        """True for segments with as many supports as sources, which stay unchanged."""
        return self.budgets == self.segments.sizes(self.device)

    @cached_property
    def first(self) -> Int[Tensor, "B M"]:
        """The first packed support of each segment."""
        return self._ends - self.budgets

    @cached_property
    def _ends(self) -> Int[Tensor, "B M"]:
        return self.budgets.cumsum(-1)

    @cached_property
    def segment(self) -> Int[Tensor, "B K"]:
        """The segment of each packed support."""
        order = torch.arange(self.supports, device=self.device)
        return (order[:, None] >= self._ends[:, None, :]).sum(-1)

    @cached_property
    def unchanged(self) -> Bool[Tensor, "B K"]:
        """True for the supports of identity segments."""
        return self.identity.gather(-1, self.segment)

    @cached_property
    def slot(self) -> Int[Tensor, "B K"]:
        """The slot of each packed support in its segment."""
        return torch.arange(self.supports, device=self.device) - self.first.gather(-1, self.segment)

    @cached_property
    def _place(self) -> Int[Tensor, "B K"]:
        """Index of each packed support among all slots."""
        return self.segment * self.slots + self.slot

    @cached_property
    def uniform_sources(self) -> Int[Tensor, "B K"]:
        """The source of its own segment that each support starts from, uniformly spaced.

        round(linspace(0, n - 1, k)) as torch computes it in float32, half to even: from the front in the first half,
        from the back in the second. The precision is part of the definition, (n, k) = (48, 23) differs without it.
        """
        last = (self.segments.sizes(self.device) - 1).float()[self.segment]
        steps = (self.budgets - 1).gather(-1, self.segment)
        stride = last / steps.clamp_min(1).float()
        front = stride * self.slot.float()
        back = last - stride * (steps - self.slot).float()
        within = torch.where(self.slot < (steps + 1) // 2, front, back).round().long()
        return torch.where(steps == 0, 0, within)  # one support starts at its segment's first source

    def uniform_rows(self, dtype: torch.dtype) -> Float[Tensor, "B 1 K n"]:
        """Return each support's start as a row: all its weight on one source."""
        order = torch.arange(self.segments.longest, device=self.device)
        return (self.uniform_sources[..., None] == order).to(dtype)[:, None]

    def pad(self, packed: Float[Tensor, "B R K D"]) -> Float[Tensor, "B R M k D"]:
        """Put packed supports into slots; empty slots repeat a neighbour and are masked wherever they are used."""
        return _take(packed, self._slots_filled.flatten(1)).unflatten(-2, self._slots_filled.shape[1:])

    @cached_property
    def _slots_filled(self) -> Int[Tensor, "B M k"]:
        """The packed support in each slot, a neighbour where there is none."""
        return (self.first[..., None] + torch.arange(self.slots, device=self.device)).clamp_max(self.supports - 1)

    @cached_property
    def sizes(self) -> Int[Tensor, "M"]:
        """The number of sources in each segment."""
        return self.segments.sizes(self.device)

    def pack(self, padded: Float[Tensor, "B R M k D"]) -> Float[Tensor, "B R K D"]:
        """Take supports out of their slots, in temporal order; undoes `pad`."""
        return _take(padded.flatten(2, 3), self._place)

    def pack_into(self, out: Float[Tensor, "B R K D"], padded: Float[Tensor, "B R M k D"]) -> None:
        """Write what `pack` returns into a tensor, of any strides; no gradient."""
        if len(out) == 1:
            torch.index_select(padded.flatten(2, 3), 2, self._place[0], out=out)
        else:
            out.copy_(self.pack(padded))

    def dense(self, rows: Float[Tensor, "B R K n"]) -> Float[Tensor, "B R K N"]:
        """Return rows over a support's own segment as rows over all N sources."""
        own = self.segment[..., None] == torch.arange(self.segments.count, device=self.device)  # [B,K,M]
        return self.segments.join(rows[..., None, :] * own[:, None, :, :, None])

    def mix(self, rows: Float[Tensor, "B R K n"], values: Float[Tensor, "B R N D"]) -> Float[Tensor, "B R K D"]:
        """Return sum_i rows_ji values_i over each support's own segment."""
        return self.pack(self.pad(rows) @ self.segments.split(values))


def _take(values: Float[Tensor, "B R J D"], index: Int[Tensor, "B K"]) -> Float[Tensor, "B R K D"]:
    """Select rows by each video's own index; a single video needs no gather."""
    if len(index) == 1:
        return values.index_select(2, index[0])
    return values.gather(2, index[:, None, :, None].expand(-1, values.shape[1], -1, values.shape[3]))
