"""Squared lengths and distances of all branches at every support and position, as forms of the sources' products.

Rows sum to one, so with a pivot o and v_i = x_i - o, ||sum w x||^2 = w G w + sum w (2 v o + o o), and the distance of
two mixtures of one segment is the form of the difference of their rows.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.places import place_in_video
from aviot.methods.aviot.kernels.products import Products
from aviot.methods.aviot.kernels.tables import Tables
from aviot.methods.aviot.layout import Layout
from aviot.ot.sinkhorn import block, kernel

FORMS = 128  # rows of one tile of forms
KINDS = tl.constexpr(3)  # of form: a branch itself, its step from the support before, its distance from the centre
MOMENTS = tl.constexpr(4)  # of a branch: size, change and spread, which are those forms, and asked


@kernel
def _forms(
    within,
    vectors,
    rows,
    region_of_patch,
    groups,
    budgets,
    moments,
    ends,
    patches,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    slots,
    members,
    LEVELS: tl.constexpr,
    PRECISION: tl.constexpr,
    MB: tl.constexpr,
    VB: tl.constexpr,
    NB: tl.constexpr,
):
    """Some supports of one segment at all patches of a group, which share their rows.

    A tile's row is one form: for each support KINDS of LEVELS. `ends` are v-forms of a segment's first and last
    support, for the distance across.
    """
    group, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(2).to(tl.int64)
    _, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    i, v = tl.arange(0, NB), tl.arange(0, VB)
    each: tl.constexpr = VB // (KINDS * LEVELS)
    j, kind, branch = tl.program_id(1) * each + v // (KINDS * LEVELS), (v // LEVELS) % KINDS, v % LEVELS
    if tl.program_id(1) * each >= k:
        return
    real = v < each * KINDS * LEVELS
    a_patch = tl.load(groups + group * members)
    region = video * regions + tl.load(region_of_patch + branch * patches + a_patch)
    own = (first + j)[:, None] * pitch + i[None, :]
    used = (real & (j < k))[:, None] & (i < n)[None, :]
    form = tl.load(rows + (region * supports * pitch)[:, None] + own, mask=used, other=0.0)
    before = rows + (region * supports * pitch)[:, None] + own - pitch
    form -= tl.load(before, mask=used & ((kind == 1) & (j > 0))[:, None], other=0.0)
    for level in tl.static_range(LEVELS):
        of_level = video * regions + tl.load(region_of_patch + level * patches + a_patch)
        share = tl.load(rows + of_level * supports * pitch + own, mask=used & (kind == 2)[:, None], other=0.0)
        form -= share * (1.0 / LEVELS)

    for member in range(members):
        slot = group * members + member
        place = (video * slots + slot) * M + segment
        # symmetric, and read as the tensor cores want it
        products = tl.trans(tl.load(within + (place * NB + i)[:, None] * NB + i[None, :]))
        asked, size = tl.load(vectors + place * 4 * NB + i), tl.load(vectors + (place * 4 + 1) * NB + i)
        answers = tl.dot(form, products, input_precision=PRECISION)
        squared = tl.sum(form * answers, 1)
        length = tl.sum(form * (answers + size[None, :]), 1)
        asked = tl.sum(form * (answers * 0.0 + asked[None, :]), 1)  # so written, it stays where the answers are
        patch = tl.load(groups + slot)
        here = real & (j < tl.where(patch < 0, 0, k))
        target = moments + (((video * patches + patch) * supports + first + j) * LEVELS + branch) * MOMENTS
        unset = (kind == 1) & (j == 0)
        tl.store(target + kind, tl.maximum(tl.where(kind == 0, length, squared), 0.0), mask=here & ~unset)
        here = here & (kind == 0)
        tl.store(target + 3, asked, mask=here)
        end = ends + place * 2 * LEVELS + branch
        tl.store(end, squared, mask=here & (j == 0))
        tl.store(end + LEVELS, squared, mask=here & (j == k - 1))


@kernel
def _jumps(
    ahead,
    vectors,
    ends,
    rows,
    region_of_patch,
    groups,
    budgets,
    moments,
    patches,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    slots,
    LEVELS: tl.constexpr,
    MB: tl.constexpr,
    NB: tl.constexpr,
):
    """The change of a segment's first support b at one patch: its distance from the last one before it, a.

    With d the step between the segments' pivots, ||a - b||^2 = a G a + b G' b - 2 a H b + d d - 2 a (v d) + 2 b (v' d).
    """
    slot, segment = tl.program_id(0) // (M - 1), tl.program_id(0) % (M - 1)
    video = tl.program_id(1).to(tl.int64)
    patch = tl.load(groups + slot)
    if patch < 0:
        return
    _, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    _, more, following, _ = place_in_video(budgets, video, segment + 1, longest, full, M, MB)
    i = tl.arange(0, NB)
    place = (video * slots + slot) * M + segment
    products = tl.load(ahead + (place * NB + i)[:, None] * NB + i[None, :])
    onward = tl.load(vectors + (place * 4 + 2) * NB + i)
    backward = tl.load(vectors + ((place + 1) * 4 + 3) * NB + i)
    for branch in tl.static_range(LEVELS):
        region = (video * regions + tl.load(region_of_patch + branch * patches + patch)) * supports
        last = tl.load(rows + (region + first + k - 1) * pitch + i, mask=i < n, other=0.0)
        next_first = tl.load(rows + (region + following) * pitch + i, mask=i < more, other=0.0)
        squares = tl.load(ends + (place * 2 + 1) * LEVELS + branch) + tl.load(ends + (place + 1) * 2 * LEVELS + branch)
        shared = tl.sum(tl.sum(products * last[:, None], 0) * next_first, 0)
        steps = tl.sum(last * onward, 0) + tl.sum(next_first * backward, 0)
        target = moments + (((video * patches + patch) * supports + following) * LEVELS + branch) * MOMENTS
        tl.store(target + 1, tl.maximum(squares - 2.0 * shared + steps, 0.0))


def branch_moments(
    products: Products,
    rows: Float[Tensor, "B regions K n"],
    known: Tables,
    layout: Layout,
    *,
    exact: bool,
) -> Float[Tensor, "B S K L 4"]:
    """Size, change, spread and product with the question of every branch; the first support's change is not set.

    `exact` takes the forms to float32 precision, else with factors of ten bits.
    """
    (levels, patches), segments = known.regions.shape, layout.segments
    batch, slots, _, _, sources = products.within.shape
    moments = rows.new_empty((batch, patches, layout.supports, levels, MOMENTS.value))
    ends = rows.new_empty((batch, slots, segments.count, 2, levels))
    counts = (segments.longest, segments.full, segments.count)
    shape = (patches, rows.shape[1], layout.supports, rows.stride(-2), *counts)
    forms = KINDS.value * levels
    tile = max(FORMS * 64 // max(64, sources), block(forms))
    _forms[(len(known.groups) * segments.count, triton.cdiv(layout.slots, tile // forms), batch)](
        products.within,
        products.vectors,
        rows,
        known.regions,
        known.groups,
        layout.budgets,
        moments,
        ends,
        *shape,
        slots,
        known.groups.shape[1],
        LEVELS=levels,
        PRECISION="tf32x3" if exact else "tf32",
        MB=block(segments.count),
        VB=tile,
        NB=sources,
        num_warps=8 if tile * sources >= 8192 else 4,
        num_stages=1 if exact and sources > 64 else 3,  # or its tiles would not fit in a multiprocessor's memory
    )
    if segments.count > 1:
        _jumps[(slots * (segments.count - 1), batch)](
            products.ahead,
            products.vectors,
            ends,
            rows,
            known.regions,
            known.groups,
            layout.budgets,
            moments,
            *shape,
            slots,
            LEVELS=levels,
            MB=block(segments.count),
            NB=sources,
        )
    return moments
