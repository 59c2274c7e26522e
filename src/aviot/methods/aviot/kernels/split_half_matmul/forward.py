"""Kernels that split factors into halves, and add up a product's parts.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.ot.sinkhorn import kernel


@triton.jit
def power_above(largest):
    """Return the least power of two above a number, and its inverse; NaN and infinity pass through products with it."""
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    power = tl.minimum(tl.maximum(exponent + 1, 1), 253)
    return (power << 23).to(tl.float32, bitcast=True), ((254 - power) << 23).to(tl.float32, bitcast=True)


@triton.jit
def store_halves(rows, halves, powers, at, present, width, column):
    """Store rows as pairs of halves, row `at` of [.., 2 width], and their powers of two."""
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
    """Load row `at` of a map's result from the two parts that `SplitMap.apply` returned."""
    mask = present[:, None] & (column < width)[None, :]
    place = parts + at[:, None] * 2 * width + column[None, :]
    total = tl.load(place, mask=mask, other=0.0) + tl.load(place + width, mask=mask, other=0.0)
    of_map, _ = power_above(tl.load(largest))
    of_row = tl.load(powers + at, mask=present, other=0.0)
    shift = tl.load(bias + column, mask=column < width, other=0.0)
    return total * of_row[:, None] * of_map + tl.where(mask, shift[None, :], 0.0)


@kernel
def split_map(weight, largest, factors, inputs, outputs, TB: tl.constexpr):
    """Split [outputs, inputs] into [[top, rest], [top, rest]] of the transpose."""
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
def add_parts(parts, powers, largest, bias, result, count, width, RB: tl.constexpr, CB: tl.constexpr):
    """Add up the parts of W x + b for some rows."""
    row, column = (tl.program_id(0) * RB + tl.arange(0, RB)).to(tl.int64), tl.arange(0, CB)
    value = load_product(parts, powers, largest, bias, row, row < count, width, column)
    mask = (row < count)[:, None] & (column < width)[None, :]
    tl.store(result + row[:, None] * width + column[None, :], value, mask=mask)
