"""Kernel of the sources' products at some patches of one segment.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton
import triton.language as tl

from aviot.ot.sinkhorn import kernel

COMPANIONS = tl.constexpr(16)  # columns of the narrowest tensor-core tile: the question, and three pivots per patch


@triton.jit
def _pick(values, index):
    """Return values[index] of a vector."""
    order = tl.arange(0, values.shape[0])
    return tl.sum(tl.where(order[None, :] == index[:, None], values[None, :], 0.0), 1)


@triton.jit
def _pick_each(values, index):
    """Return values[r, index[r]] of a tile."""
    order = tl.arange(0, values.shape[1])
    return tl.sum(tl.where(order[None, :] == index[:, None], values, 0.0), 1)


@triton.jit
def _centred(products, pivot):
    """Turn products x_i y_j into (x_i - x_o)(y_j - y_o), with o the pivot of i, where i and j have the same."""
    order = tl.arange(0, products.shape[0])
    own = order[:, None] == pivot[None, :]
    row, column = tl.sum(tl.where(own, products, 0.0), 0), _pick_each(products, pivot)
    corner = tl.sum(tl.where(own, column[:, None], 0.0), 0)
    return (products - column[:, None]) - (row - corner)[None, :]


@kernel
def source_products(
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
    SB: tl.constexpr,
    DB: tl.constexpr,
):
    """Multiply one segment's sources at one patch (or several that fit in a tile), less the first, the pivot o.

    With v_i = x_i - o, `within` is v_i v_j, and `ahead` is v_i times the next segment's v_j. With d the step from a
    pivot to the next segment's and q the question, `vectors` are x_i q, 2 v_i o + o o, d d - 2 v_i d, and 2 v_i d with
    the step from the segment before. Features of 16 bits (HALVES) go to the tensor cores unchanged, whose products are
    exact, and the pivots are subtracted from the products; from float32 features they are subtracted first, so that
    small distances survive.
    """
    several: tl.constexpr = NB // SB
    segment, video = tl.program_id(0) % M, tl.program_id(1).to(tl.int64)
    r, d, e = tl.arange(0, NB), tl.arange(0, DB), tl.arange(0, COMPANIONS)
    i, member = r % SB, r // SB
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
    alone = tl.max(patch, 0)  # the only patch, where there is one; an empty slot of a group reads nothing
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
    question_product, on_pivot = _pick_each(along, 0 * r), _pick_each(along, pivot)
    on_next, on_last = _pick_each(along, pivot + 1) - on_pivot, on_pivot - _pick_each(along, pivot + 2)
    if HALVES:
        first = member * SB
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
        question_product += _pick(to_pivot, 0 * r)
        length, step = _pick(to_pivot, pivot), _pick(apart, pivot + 1)

    place = (video * slots + slot) * M + segment
    tile_at = (place * SB + i)[:, None] * SB + i[None, :]
    stored = (slot < slots)[:, None] & (member[:, None] == member[None, :])
    tl.store(within + tile_at, inner, mask=stored)
    if AHEAD:
        tl.store(ahead + tile_at, outer, mask=stored)
    vector = vectors + place * 4 * SB + i
    tl.store(vector, question_product, mask=slot < slots)
    tl.store(vector + SB, 2.0 * on_pivot + length, mask=slot < slots)
    tl.store(vector + 2 * SB, step - 2.0 * on_next, mask=slot < slots)
    tl.store(vector + 3 * SB, 2.0 * on_last, mask=slot < slots)
