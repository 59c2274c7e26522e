"""Linear maps to float32 precision on tensor cores, which take factors of 16 bits twice as fast as of 32.

Each factor is scaled by a power of two, a row's own or the whole matrix's, until its largest number is below one, and
given as the nearest half and a second half for what is left, which is within 2^-25 of it. Rows come as [top, rest] and
a map as [[top, rest], [top, rest]], so one product has all four parts, in two blocks of columns that add up.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.ot.sinkhorn import block, kernel

TILE = 64  # rows and columns of a map that one program splits
ROWS = 8  # of one program that adds their parts


@triton.jit
def power_above(largest):
    """The least power of two above a number, and its inverse; what is not a number stays so in products with it."""
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    power = tl.minimum(tl.maximum(exponent + 1, 1), 253)
    return (power << 23).to(tl.float32, bitcast=True), ((254 - power) << 23).to(tl.float32, bitcast=True)


@triton.jit
def store_halves(rows, halves, powers, at, present, width, column):
    """Rows as the product takes them, row `at` of [.., 2 width], and their powers of two."""
    mask = present[:, None] & (column < width)[None, :]
    largest = tl.max(tl.where(mask, tl.abs(rows), 0.0), 1)
    power, inverse = power_above(largest)
    scaled = rows * inverse[:, None]
    top = scaled.to(tl.float16)
    place = halves + at[:, None] * 2 * width + column[None, :]
    tl.store(place, top, mask=mask)
    tl.store(place + width, (scaled - top.to(tl.float32)).to(tl.float16), mask=mask)
    tl.store(powers + at, power, mask=present)


@triton.jit
def load_product(parts, powers, largest, bias, at, present, width, column):
    """Row `at` of a map's result, from the two parts that `SplitMap.apply` left."""
    mask = present[:, None] & (column < width)[None, :]
    place = parts + at[:, None] * 2 * width + column[None, :]
    total = tl.load(place, mask=mask, other=0.0) + tl.load(place + width, mask=mask, other=0.0)
    of_map, _ = power_above(tl.load(largest))
    of_row = tl.load(powers + at, mask=present, other=0.0)
    shift = tl.load(bias + column, mask=column < width, other=0.0)
    return total * of_row[:, None] * of_map + tl.where(mask, shift[None, :], 0.0)


@kernel
def _split(weight, largest, factors, inputs, outputs, TB: tl.constexpr):
    """[outputs, inputs] into [[top, rest], [top, rest]] of the transpose."""
    i, o = tl.program_id(0) * TB + tl.arange(0, TB), tl.program_id(1) * TB + tl.arange(0, TB)
    mask = (i < inputs)[:, None] & (o < outputs)[None, :]
    _, inverse = power_above(tl.load(largest))
    value = tl.load(weight + o[None, :] * inputs + i[:, None], mask=mask, other=0.0).to(tl.float32) * inverse
    top = value.to(tl.float16)
    rest = (value - top.to(tl.float32)).to(tl.float16)
    for copy in tl.static_range(2):
        place = factors + (copy * inputs + i)[:, None] * 2 * outputs + o[None, :]
        tl.store(place, top, mask=mask)
        tl.store(place + outputs, rest, mask=mask)


@kernel
def _total(parts, powers, largest, bias, result, count, width, RB: tl.constexpr, CB: tl.constexpr):
    """W x + b of some rows."""
    row, column = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    value = load_product(parts, powers, largest, bias, row, row < count, width, column)
    mask = (row < count)[:, None] & (column < width)[None, :]
    tl.store(result + row[:, None] * width + column[None, :], value, mask=mask)


@dataclass(frozen=True)
class SplitRows:
    """Rows in halves, and each row's power of two."""

    halves: Float[Tensor, "rows 2I"]
    powers: Float[Tensor, "rows"]

    @classmethod
    def empty(cls, rows: int, width: int, device: torch.device) -> "SplitRows":
        """Room for them, for `store_halves`."""
        halves = torch.empty((rows, 2 * width), dtype=torch.float16, device=device)
        return cls(halves, torch.empty(rows, device=device))


@dataclass(frozen=True)
class SplitMap:
    """W x + b of rows in halves."""

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
        _split[grid](weight, largest, factors, inputs, outputs, TB=TILE)
        return cls(factors, largest, bias.detach().float().contiguous())

    def apply(self, rows: SplitRows) -> Float[Tensor, "rows 2O"]:
        """The product's two parts, for `load_product`."""
        if not rows.halves.is_cuda:
            return rows.halves.float() @ self.factors.float()
        return torch.mm(rows.halves, self.factors, out_dtype=torch.float32)

    def total(self, parts: Float[Tensor, "rows 2O"], rows: SplitRows) -> Float[Tensor, "rows O"]:
        """W x + b, from the product's parts."""
        count, width = len(parts), len(self.bias)
        result = parts.new_empty((count, width))
        tile = {"RB": ROWS, "CB": block(width)}
        _total[(triton.cdiv(count, ROWS),)](parts, rows.powers, self.largest, self.bias, result, count, width, **tile)
        return result
