"""Kernel of one segment's distortion, or with REVERSE of its gradients.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import triton.language as tl

from aviot.methods.aviot.kernels.device_functions import own_segment
from aviot.ot.sinkhorn import kernel


@kernel
def segment_distortion(
    products,
    rows,
    mass,
    budgets,
    values,
    gradient,
    grad_rows,
    grad_mass,
    spread,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    dim,
    STABILIZER: tl.constexpr,
    REVERSE: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
    TB: tl.constexpr,
):
    """Compute sum_ij P_ij |x_i - z_j|^2 / (D sum_ij P_ij) of one segment of one region; with REVERSE its gradients.

    Sources carry a gradient as parts of z alone: dz_j = -c_j sum_i A_ij x_i with c_j = 2 m_j (1 - s_j) over the
    denominator, where nothing is subtracted. `spread` takes -A^T diag(s c) A, which times the sources is theirs.
    """
    region, _, _, n, first, k = own_segment(regions, budgets, longest, full, M, MB)
    problem = tl.program_id(0).to(tl.int64)
    i, all_supports = tl.arange(0, NB), tl.arange(0, KB)
    support = region * supports + first
    moving = tl.where(k < n, k, 0)  # an identity segment has no distortion
    there = tl.load(mass + support + all_supports, mask=all_supports < k, other=0.0).to(tl.float64)
    over = tl.sum(there, 0) * dim
    grid = products + problem * longest * longest
    square = (i < n)[:, None] & (i < n)[None, :]
    gram = tl.load(grid + i[:, None] * longest + i[None, :], mask=square, other=0.0)
    length = tl.load(grid + i * longest + i, mask=i < n, other=0.0)
    total = tl.zeros((TB,), tl.float64)
    share = tl.zeros((NB, NB), tl.float32)
    mean, change = total, 0.0
    if REVERSE:
        mean = tl.load(values + problem)
        change = tl.load(gradient + problem).to(tl.float64) / over
    for before in range(0, moving, TB):
        j = before + tl.arange(0, TB)
        used = (j < k)[:, None] & (i < n)[None, :]
        at = (support + j)[:, None] * pitch + i[None, :]
        row = tl.load(rows + at, mask=used, other=0.0)
        a = row.to(tl.float64)
        a = a / tl.where(j < k, tl.sum(a, 1), 1.0)[:, None]  # a sum that misses one moves points far away
        m = tl.load(mass + support + j, mask=j < k, other=0.0).to(tl.float64)
        rest = STABILIZER / (m + STABILIZER)
        shrink = 1.0 - rest
        along = tl.dot(a, gram, out_dtype=tl.float64)
        centre = tl.sum(a * along, 1)
        away = length[None, :] - 2.0 * shrink[:, None] * along + (shrink * shrink * centre)[:, None]
        away = tl.where(used, away, 0.0)
        if REVERSE:
            pull = 2.0 * m * rest * change
            to_plan = (away - mean * dim) * change
            to_rows = m[:, None] * to_plan - (shrink * pull)[:, None] * along
            tl.store(grad_rows + at, tl.where(used, to_rows, 0.0), mask=(j < k)[:, None] & (i < longest)[None, :])
            to_mass = tl.sum(tl.where(used, a * to_plan, 0.0), 1) - pull * centre * rest / (m + STABILIZER)
            tl.store(grad_mass + support + j, to_mass, mask=j < k)
            weight = row * (shrink * pull).to(tl.float32)[:, None]
            share -= tl.dot(tl.trans(weight), row, input_precision="tf32x3")
        else:
            total += m * tl.sum(a * away, 1)
    if REVERSE:
        for before in range(moving, k, TB):
            j = before + tl.arange(0, TB)
            written = (j < k)[:, None] & (i < longest)[None, :]
            tl.store(grad_rows + (support + j)[:, None] * pitch + i[None, :], 0.0, mask=written)
            tl.store(grad_mass + support + j, 0.0, mask=j < k)
        inside = (i < longest)[:, None] & (i < longest)[None, :]
        tl.store(spread + problem * longest * longest + i[:, None] * longest + i[None, :], share, mask=inside)
    else:
        tl.store(values + problem, tl.sum(total, 0) / over)
