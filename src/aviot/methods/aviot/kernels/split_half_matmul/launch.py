"""Split rows and maps, and their products."""

from dataclasses import dataclass

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.split_half_matmul.forward import add_parts, split_map
from aviot.ot.sinkhorn import block

TILE = 64  # rows and columns of a map that one program splits
ROWS = 8  # of one program that adds their parts


@dataclass(frozen=True)
class SplitRows:
    """Rows as pairs of halves, and each row's power of two."""

    halves: Float[Tensor, "rows 2I"]
    powers: Float[Tensor, "rows"]

    @classmethod
    def empty(cls, rows: int, width: int, device: torch.device) -> "SplitRows":
        """Allocate them for `store_halves`, uninitialised."""
        halves = torch.empty((rows, 2 * width), dtype=torch.float16, device=device)
        return cls(halves, torch.empty(rows, device=device))


@dataclass(frozen=True)
class SplitMap:
    """A linear map W x + b of split rows."""

    factors: Float[Tensor, "2I 2O"]
    largest: Float[Tensor, ""]  # of |W|
    bias: Float[Tensor, "O"]

    @classmethod
    def of(cls, weight: Float[Tensor, "O I"], bias: Float[Tensor, "O"]) -> "SplitMap":
        """Split a layer's parameters."""
        weight, (outputs, inputs) = weight.detach().contiguous(), weight.shape
        largest = torch.linalg.vector_norm(weight, torch.inf, dtype=torch.float32)
        factors = torch.empty((2 * inputs, 2 * outputs), dtype=torch.float16, device=weight.device)
        grid = (triton.cdiv(inputs, TILE), triton.cdiv(outputs, TILE))
        split_map[grid](weight, largest, factors, inputs, outputs, TB=TILE)
        return cls(factors, largest, bias.detach().float().contiguous())

    def apply(self, rows: SplitRows) -> Float[Tensor, "rows 2O"]:
        """Return the product's two parts, for `load_product`."""
        if not rows.halves.is_cuda:
            return rows.halves.float() @ self.factors.float()
        return torch.mm(rows.halves, self.factors, out_dtype=torch.float32)

    def total(self, parts: Float[Tensor, "rows 2O"], rows: SplitRows) -> Float[Tensor, "rows O"]:
        """Return W x + b from the product's parts."""
        count, width = len(parts), len(self.bias)
        result = parts.new_empty((count, width))
        tile = {"RB": ROWS, "CB": block(width)}
        add_parts[(triton.cdiv(count, ROWS),)](
            parts, rows.powers, self.largest, self.bias, result, count, width, **tile
        )
        return result
