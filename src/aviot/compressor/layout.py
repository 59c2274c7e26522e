"""Where a stage's K supports sit: how many each segment has, and how packed, padded and dense forms relate.

Three forms of the same supports:

* packed, [.., K, ..]: the supports in temporal order, as the stage returns them;
* padded, [.., M, k, ..]: k slots a segment, as the solver takes them (k = the most any segment could be given);
* dense, [.., K, N]: a plan's rows over all sources, zero outside the support's own segment.

Budgets live on the device and are never read by the host, so shapes depend on N and K alone.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aviot.compressor.segments import Segments


@dataclass(frozen=True)
class Layout:
    """K supports spread over segments by integer `budgets`, which sum to K with 1 <= budget <= segment size."""

    segments: Segments
    supports: int
    budgets: Int[Tensor, "B M"]

    @property
    def slots(self) -> int:
        """k, the most supports one segment can have: the others keep at least one each."""
        return min(self.segments.longest, self.supports - self.segments.count + 1)

    @property
    def device(self) -> torch.device:
        """Where the budgets live."""
        return self.budgets.device

    @cached_property
    def slot_mask(self) -> Bool[Tensor, "B M k"]:
        """True where a slot holds a support."""
        return torch.arange(self.slots, device=self.device) < self.budgets[..., None]

    @cached_property
    def identity(self) -> Bool[Tensor, "B M"]:
        """True for segments with as many supports as sources: they are kept as they are."""
        return self.budgets == self.segments.sizes(self.device)

    @cached_property
    def _ends(self) -> Int[Tensor, "B M"]:
        return self.budgets.cumsum(-1)

    @cached_property
    def segment(self) -> Int[Tensor, "B K"]:
        """The segment of each packed support."""
        order = torch.arange(self.supports, device=self.device)
        return (order[:, None] >= self._ends[:, None, :]).sum(-1)

    @cached_property
    def kept(self) -> Bool[Tensor, "B K"]:
        """True for the supports of identity segments."""
        return self.identity.gather(-1, self.segment)

    @cached_property
    def slot(self) -> Int[Tensor, "B K"]:
        """The slot of each packed support in its segment."""
        first = self._ends - self.budgets
        return torch.arange(self.supports, device=self.device) - first.gather(-1, self.segment)

    @cached_property
    def _place(self) -> Int[Tensor, "B K"]:
        """Index of each packed support among all slots."""
        return self.segment * self.slots + self.slot

    @cached_property
    def uniform_sources(self) -> Int[Tensor, "B K"]:
        """The source that each support starts from, uniformly spaced in its segment.

        round(linspace(0, n - 1, k)) as torch computes it in float32, half to even: from the front in the first half,
        from the back in the second. The precision is part of the definition, (n, k) = (48, 23) differs without it.
        """
        last = (self.segments.sizes(self.device) - 1).float()[self.segment]
        steps = (self.budgets - 1).gather(-1, self.segment)
        stride = last / steps.clamp_min(1).float()
        front = stride * self.slot.float()
        back = last - stride * (steps - self.slot).float()
        within = torch.where(self.slot < (steps + 1) // 2, front, back).round().long()
        within = torch.where(steps == 0, 0, within)  # one support starts at its segment's first source
        return self.segments.starts(self.device)[self.segment] + within

    def take_sources(self, x: Float[Tensor, "B R N D"], index: Int[Tensor, "B K"]) -> Float[Tensor, "B R K D"]:
        """x at one source index a support."""
        return x.take_along_dim(index[:, None, :, None], -2)

    def pad(self, packed: Float[Tensor, "B R K D"]) -> Float[Tensor, "B R M k D"]:
        """Packed supports into slots; empty slots repeat a neighbour and are masked wherever they are used."""
        first = self._ends - self.budgets
        index = (first[..., None] + torch.arange(self.slots, device=self.device)).clamp_max(self.supports - 1)
        return packed.take_along_dim(index.flatten(1)[:, None, :, None], -2).unflatten(-2, index.shape[1:])

    def pack(self, padded: Float[Tensor, "B R M k D"]) -> Float[Tensor, "B R K D"]:
        """Supports out of their slots, in temporal order; undoes `pad`."""
        return padded.flatten(2, 3).take_along_dim(self._place[:, None, :, None], -2)

    def dense(self, padded: Float[Tensor, "B R M n k"]) -> Float[Tensor, "B R K N"]:
        """A padded plan as one row a support over all N sources."""
        rows = self.pack(padded.mT)  # [B,R,K,n]
        own = self.segment[..., None] == torch.arange(self.segments.count, device=self.device)  # [B,K,M]
        return self.segments.join(rows[..., None, :] * own[:, None, :, :, None])
