"""Memory and launch of the sources' Gram matrices."""

from dataclasses import dataclass

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.kernels.gram.forward import source_products
from aviot.methods.aviot.segments import Segments
from aviot.ot.sinkhorn import block

TILE = 64  # minimum sources of one tile: the widest tensor-core instruction
CHANNELS = 64  # of one tile, fewer where it has more sources


@dataclass(frozen=True)
class GramMatrices:
    """Products of every segment's sources at every patch, in the order of the patch groups; see `source_products`."""

    within: Float[Tensor, "B slots M n n"]
    ahead: Float[Tensor, "B slots M n n"]
    vectors: Float[Tensor, "B slots M 4 n"]
    question: Float[Tensor, "B D"]  # in the features' type
    groups: Int[Tensor, "G P"]
    segments: Segments

    @classmethod
    def empty(cls, question: Float[Tensor, "B D"], groups: Int[Tensor, "G P"], segments: Segments) -> "GramMatrices":
        """Allocate them, uninitialised."""
        sources, shape = block(segments.longest), (len(question), groups.numel(), segments.count)
        square = torch.empty((2 if segments.count > 1 else 1, *shape, sources, sources), device=groups.device)
        vectors = torch.empty((*shape, 4, sources), device=groups.device)
        return cls(square[0], square[-1], vectors, question, groups, segments)

    def fill(self, x: Float[Tensor, "B N S D"]) -> None:
        """Compute them from the features."""
        batch, frames, patches, dim = x.shape
        halves, sources, slots = x.dtype != torch.float32, self.within.shape[-1], self.groups.numel()
        tile = max(TILE, sources) if halves else sources
        source_products[(triton.cdiv(slots * sources, tile) * self.segments.count, batch)](
            x,
            self.question,
            self.groups,
            self.within,
            self.ahead,
            self.vectors,
            frames,
            patches,
            dim,
            slots,
            self.segments.longest,
            self.segments.full,
            self.segments.count,
            HALVES=halves,
            AHEAD=self.segments.count > 1,
            NB=tile,
            SB=sources,
            DB=CHANNELS * TILE // max(TILE, tile),
            num_warps=4 if tile <= TILE else 8,
            num_stages=4 if halves else 3,
        )
