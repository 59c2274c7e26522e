"""Kernels of the branches' forms within a segment, and of their changes across segments.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import at_least, segment_bounds
from aviot.ot.sinkhorn import kernel

KINDS = tl.constexpr(3)  # of form: a branch, its step from the previous support, its distance from the branches' mean
MOMENTS = tl.constexpr(4)  # of a branch: size, change and spread, which are those forms, and the question's product


@kernel
def quadratic_forms(
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
    """Compute the forms of some supports of one segment at all patches of a group, which share their rows.

    A tile's row is one form: for each support KINDS of LEVELS. `ends` are v-forms of a segment's first and last
    support, for the distance across.
    """
    group, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(2).to(tl.int64)
    _, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
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
        level_region = video * regions + tl.load(region_of_patch + level * patches + a_patch)
        share = tl.load(rows + level_region * supports * pitch + own, mask=used & (kind == 2)[:, None], other=0.0)
        form -= share * (1.0 / LEVELS)

    for member in range(members):
        slot = group * members + member
        place = (video * slots + slot) * M + segment
        # symmetric; transposed, it has the layout that tensor cores read
        products = tl.trans(tl.load(within + (place * NB + i)[:, None] * NB + i[None, :]))
        question_product, size = tl.load(vectors + place * 4 * NB + i), tl.load(vectors + (place * 4 + 1) * NB + i)
        answers = tl.dot(form, products, input_precision=PRECISION)
        squared = tl.sum(form * answers, 1)
        length = tl.sum(form * (answers + size[None, :]), 1)
        # the product with zero keeps the register layout of `answers`
        question_product = tl.sum(form * (answers * 0.0 + question_product[None, :]), 1)
        patch = tl.load(groups + slot)
        here = real & (j < tl.where(patch < 0, 0, k))
        target = moments + (((video * patches + patch) * supports + first + j) * LEVELS + branch) * MOMENTS
        unset = (kind == 1) & (j == 0)
        tl.store(target + kind, at_least(tl.where(kind == 0, length, squared), 0.0), mask=here & ~unset)
        here = here & (kind == 0)
        tl.store(target + 3, question_product, mask=here)
        end = ends + place * 2 * LEVELS + branch
        tl.store(end, squared, mask=here & (j == 0))
        tl.store(end + LEVELS, squared, mask=here & (j == k - 1))


@kernel
def boundary_changes(
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
    """Compute the change of a segment's first support b at one patch: its distance to the previous support a.

    With d the step between the segments' pivots, ||a - b||^2 = a G a + b G' b - 2 a H b + d d - 2 a (v d) + 2 b (v' d).
    """
    slot, segment = tl.program_id(0) // (M - 1), tl.program_id(0) % (M - 1)
    video = tl.program_id(1).to(tl.int64)
    patch = tl.load(groups + slot)
    if patch < 0:
        return
    _, n, first, k = segment_bounds(budgets, video, segment, longest, full, M, MB)
    _, more, following, _ = segment_bounds(budgets, video, segment + 1, longest, full, M, MB)
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
        tl.store(target + 1, at_least(squares - 2.0 * shared + steps, 0.0))
