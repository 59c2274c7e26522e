"""Products of a patch's sources with each other: all that lengths and distances of their mixtures need of the features.

A mixture's length is a form of these products, w G w, whatever the plan. So the features are read for them before the
plans are known, beside the transport, whose rounds are short and leave most of a GPU idle.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.segments import Segments
from aviot.ot.sinkhorn import block, kernel

TILE = 64  # sources of one tile at least: what the widest tensor-core instruction takes
CHANNELS = 64  # of one tile, fewer where it has more sources
COMPANIONS = tl.constexpr(16)  # the narrowest tile a tensor core takes: the question, and three pivots a patch


@triton.jit
def _pick(values, index):
    """values[index] of a vector."""
    order = tl.arange(0, values.shape[0])
    return tl.sum(tl.where(order[None, :] == index[:, None], values[None, :], 0.0), 1)


@triton.jit
def _pick_each(values, index):
    """values[r, index[r]] of a tile."""
    order = tl.arange(0, values.shape[1])
    return tl.sum(tl.where(order[None, :] == index[:, None], values, 0.0), 1)


@triton.jit
def _centred(products, pivot):
    """(x_i - x_o)(y_j - y_o) of products x_i y_j, with o the pivot of i, where i and j have the same."""
    order = tl.arange(0, products.shape[0])
    own = order[:, None] == pivot[None, :]
    row, column = tl.sum(tl.where(own, products, 0.0), 0), _pick_each(products, pivot)
    corner = tl.sum(tl.where(own, column[:, None], 0.0), 0)
    return (products - column[:, None]) - (row - corner)[None, :]


@kernel
def _products(
    x,
    question,
    groups,
    within,
    ahead,
    vectors,
    frames,
    patches,
    dim,
    slots,
    longest,
    full,
    M,
    HALVES: tl.constexpr,
    AHEAD: tl.constexpr,
    NB: tl.constexpr,
    KEPT: tl.constexpr,
    DB: tl.constexpr,
):
    """One segment's sources at one patch, or at several where they fit in a tile, less the first of them, the pivot o.

    With v_i = x_i - o, `within` is v_i v_j, and `ahead` is v_i times the next segment's v_j. With d the step from a
    pivot to the next segment's and q the question, `vectors` are x_i q, 2 v_i o + o o, d d - 2 v_i d, and 2 v_i d with
    the step from the segment before. Features of 16 bits (HALVES) go to the tensor cores as they are, whose products
    are exact, and pivots are taken off the products; float32 ones lose them first, so that what stands still keeps its
    small distances.
    """
    several: tl.constexpr = NB // KEPT
    segment, video = tl.program_id(0) % M, tl.program_id(1).to(tl.int64)
    r, d, e = tl.arange(0, NB), tl.arange(0, DB), tl.arange(0, COMPANIONS)
    i, member = r % KEPT, r // KEPT
    slot = (tl.program_id(0) // M) * several + member
    patch = tl.load(groups + slot, mask=slot < slots, other=-1)
    start, n = segment * longest - tl.maximum(segment - full, 0), longest - tl.where(segment >= full, 1, 0)
    more = tl.where(segment + 1 < M, longest - tl.where(segment + 1 >= full, 1, 0), 0)
    fewer = tl.where(segment > 0, longest - tl.where(segment - 1 >= full, 1, 0), 0)
    stride = patches.to(tl.int64) * dim
    origin = x + (video * frames + start) * stride
    onward = tl.where(more > 0, n, 0) * stride  # the last segment's next is itself
    source = patch * dim + i * stride
    # companions: the question, then pivot, next pivot and the one before of each patch
    beside_slot = (tl.program_id(0) // M) * several + (e - 1) // 3
    beside_patch = tl.load(groups + beside_slot, mask=(e > 0) & (beside_slot < slots) & (e <= 3 * several), other=-1)
    which = (e - 1) % 3
    beside = origin + beside_patch * dim + tl.where(which == 1, onward, tl.where(which == 2, -fewer * stride, 0))
    beside = tl.where(e == 0, question + video * dim, beside)
    here, there, known = (i < n) & (patch >= 0), (i < more) & (patch >= 0), (e == 0) | (beside_patch >= 0)
    alone = tl.max(patch, 0)  # the only one, where there is one; a group's empty place reads nothing
    reach = tl.where(alone < 0, 0, dim)

    inner = tl.zeros((NB, NB), tl.float32)
    outer = tl.zeros((NB, NB), tl.float32)
    along = tl.zeros((NB, COMPANIONS), tl.float32)
    among = tl.zeros((COMPANIONS, COMPANIONS), tl.float32)
    to_pivot, apart = tl.zeros((COMPANIONS,), tl.float32), tl.zeros((COMPANIONS,), tl.float32)
    for channel in range(0, dim, DB):
        real = (channel + d < dim)[None, :]
        at = source[:, None] + channel + d[None, :]
        tile = tl.load(origin + at, mask=here[:, None] & real, other=0.0)
        companions = tl.load(beside[:, None] + channel + d[None, :], mask=known[:, None] & real, other=0.0)
        if HALVES:
            along = tl.dot(tile, tl.trans(companions), along)
            among = tl.dot(companions, tl.trans(companions), among)
            inner = tl.dot(tile, tl.trans(tile), inner)
            if AHEAD:
                other = tl.load(origin + onward + at, mask=there[:, None] & real, other=0.0)
                outer = tl.dot(tile, tl.trans(other), outer)
        else:  # one patch
            pivot = tl.load(origin + alone * dim + channel + d, mask=channel + d < reach, other=0.0)[None, :]
            to_pivot += tl.sum(companions * pivot, 1)
            apart += tl.sum((companions - pivot) * (companions - pivot), 1)
            tile = tl.where(here[:, None], tile - pivot, 0.0)
            along = tl.dot(tile, tl.trans(companions), along, input_precision="tf32x3")
            inner = tl.dot(tile, tl.trans(tile), inner, input_precision="tf32x3")
            if AHEAD:
                other = tl.load(origin + onward + at, mask=there[:, None] & real, other=0.0)
                first = origin + onward + alone * dim
                pivot = tl.load(first + channel + d, mask=channel + d < reach, other=0.0)[None, :]
                other = tl.where(there[:, None], other - pivot, 0.0)
                outer = tl.dot(tile, tl.trans(other), outer, input_precision="tf32x3")

    pivot = 1 + 3 * member  # among the companions
    asked, on_pivot = _pick_each(along, 0 * r), _pick_each(along, pivot)
    on_next, on_last = _pick_each(along, pivot + 1) - on_pivot, on_pivot - _pick_each(along, pivot + 2)
    if HALVES:
        first = member * KEPT
        inner, outer = _centred(inner, first), _centred(outer, first)
        on_pivot, on_next, on_last = (
            on_pivot - _pick(on_pivot, first),
            on_next - _pick(on_next, first),
            on_last - _pick(on_last, first),
        )
        itself = tl.sum(tl.where(e[:, None] == e[None, :], among, 0.0), 0)
        to_next = _pick(tl.sum(tl.where(e[:, None] == e[None, :] - 1, among, 0.0), 0), pivot + 1)
        length = _pick(itself, pivot)
        step = (_pick(itself, pivot + 1) - to_next) - (to_next - length)
    else:
        asked += _pick(to_pivot, 0 * r)
        length, step = _pick(to_pivot, pivot), _pick(apart, pivot + 1)

    place = (video * slots + slot) * M + segment
    tile_at = (place * KEPT + i)[:, None] * KEPT + i[None, :]
    kept = (slot < slots)[:, None] & (member[:, None] == member[None, :])
    tl.store(within + tile_at, inner, mask=kept)
    if AHEAD:
        tl.store(ahead + tile_at, outer, mask=kept)
    vector = vectors + place * 4 * KEPT + i
    tl.store(vector, asked, mask=slot < slots)
    tl.store(vector + KEPT, 2.0 * on_pivot + length, mask=slot < slots)
    tl.store(vector + 2 * KEPT, step - 2.0 * on_next, mask=slot < slots)
    tl.store(vector + 3 * KEPT, 2.0 * on_last, mask=slot < slots)


@dataclass(frozen=True)
class Products:
    """Of every segment's sources at every patch, patches in their groups' order; see `_products`."""

    within: Float[Tensor, "B slots M n n"]
    ahead: Float[Tensor, "B slots M n n"]
    vectors: Float[Tensor, "B slots M 4 n"]
    question: Float[Tensor, "B D"]  # in the features' type
    groups: Int[Tensor, "G P"]
    segments: Segments

    @classmethod
    def empty(cls, question: Float[Tensor, "B D"], groups: Int[Tensor, "G P"], segments: Segments) -> "Products":
        """Room for them."""
        sources, shape = block(segments.longest), (len(question), groups.numel(), segments.count)
        square = torch.empty((2 if segments.count > 1 else 1, *shape, sources, sources), device=groups.device)
        vectors = torch.empty((*shape, 4, sources), device=groups.device)
        return cls(square[0], square[-1], vectors, question, groups, segments)

    def fill(self, x: Float[Tensor, "B N S D"]) -> None:
        """Take them from the features."""
        batch, frames, patches, dim = x.shape
        halves, kept, slots = x.dtype != torch.float32, self.within.shape[-1], self.groups.numel()
        tile = max(TILE, kept) if halves else kept
        _products[(triton.cdiv(slots * kept, tile) * self.segments.count, batch)](
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
            KEPT=kept,
            DB=CHANNELS * TILE // max(TILE, tile),
            num_warps=4 if tile <= TILE else 8,
            num_stages=4 if halves else 3,
        )
