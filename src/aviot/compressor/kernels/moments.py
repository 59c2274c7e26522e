"""Squared lengths and distances of all branches at every support and position, reading the features once."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from aviot.compressor.kernels.transport import place_in_video
from aviot.compressor.layout import Layout
from aviot.ot.sinkhorn import block, kernel

CHANNELS = 128  # of one tile of edges
TILE = 64  # sources of one tile at least: what the widest tensor-core instruction takes
FORM_ROWS = 16  # supports of one program that takes forms: few enough for several programs a multiprocessor
EDGE_ROWS = 16  # a tensor core's least; first and last supports of every granularity
MOMENTS = tl.constexpr(4)  # of a branch: size, change, spread, asked


@kernel
def _products(
    x,
    rows,
    region_of_patch,
    budgets,
    question,
    products,
    edges,
    frames,
    patches,
    dim,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    LEVELS: tl.constexpr,
    HALVES: tl.constexpr,
    EB: tl.constexpr,
    MB: tl.constexpr,
    NB: tl.constexpr,
    KEPT: tl.constexpr,
    DB: tl.constexpr,
):
    """One segment's sources at one patch: their products among each other, with the question and with a pivot.

    Question and pivot, the segment's first source, sit below the sources in the tile. Features of float32 are taken
    less the pivot, so that what stands still keeps its small distances; features of 16 bits (HALVES) go to the tensor
    cores as they are. The branches' first and last supports are written out, for the distances across segments.
    """
    patch, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(1).to(tl.int64)
    start, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    i, d, e = tl.arange(0, NB), tl.arange(0, DB), tl.arange(0, EB)
    place = (video * patches + patch) * M + segment
    edge_region = tl.load(region_of_patch + (e % LEVELS) * patches + patch, mask=e < 2 * LEVELS, other=0)
    edge_support = first + tl.where(e < LEVELS, 0, k - 1)
    edge_place = ((video * regions + edge_region) * supports + edge_support)[:, None] * pitch + i[None, :]
    edge_rows = tl.load(rows + edge_place, mask=(e < 2 * LEVELS)[:, None] & (i < n)[None, :], other=0.0)
    origin = x + ((video * frames + start) * patches + patch) * dim
    beside = tl.where((i == n)[:, None], question + video * dim, origin)
    source = tl.where((i < n)[:, None], origin + i[:, None] * patches * dim, beside)
    wanted = i < n + 2
    if HALVES:
        wanted = i < n + 1

    gram = tl.zeros((NB, NB), tl.float32)
    for channel in range(0, dim, DB):
        real = channel + d < dim
        tile = tl.load(source + channel + d[None, :], mask=wanted[:, None] & real[None, :], other=0.0)
        if HALVES:
            high = edge_rows.to(tile.dtype)
            low = (edge_rows - high.to(tl.float32)).to(tile.dtype)
            edge = tl.dot(low, tile, tl.dot(high, tile))
            gram = tl.dot(tile, tl.trans(tile), gram)
        else:
            edge = tl.dot(edge_rows, tile, input_precision="tf32x3")
            pivot = tl.load(origin + channel + d, mask=real, other=0.0)
            tile = tl.where((i < n)[:, None], tile - pivot[None, :], tile)
            gram = tl.dot(tile, tl.trans(tile), gram, input_precision="tf32x3")
        if M > 1:
            stored = (e < 2 * LEVELS)[:, None] & real[None, :]
            tl.store(edges + (place * 2 * LEVELS + e)[:, None] * dim + channel + d[None, :], edge, mask=stored)
    kept = i < KEPT
    tl.store(products + (place * KEPT + i)[:, None] * KEPT + i[None, :], gram, mask=kept[:, None] & kept[None, :])


@kernel
def _forms(
    products,
    rows,
    region_of_patch,
    budgets,
    moments,
    patches,
    regions,
    supports,
    pitch,
    longest,
    full,
    M,
    LEVELS: tl.constexpr,
    PIVOT: tl.constexpr,
    PRECISION: tl.constexpr,
    MB: tl.constexpr,
    KB: tl.constexpr,
    NB: tl.constexpr,
):
    """Some supports of one segment at one patch: lengths and distances as forms of the sources' products.

    Rows sum to one, so with a pivot o and v_i = x_i - o, ||sum w x||^2 = w G w + 2 sum w (v o) + o o.
    """
    patch, segment = tl.program_id(0) // M, tl.program_id(0) % M
    video = tl.program_id(2).to(tl.int64)
    _, n, first, k = place_in_video(budgets, video, segment, longest, full, M, MB)
    i, j = tl.arange(0, NB), tl.program_id(1) * KB + tl.arange(0, KB)
    grid = products + ((video * patches + patch) * M + segment) * NB * NB
    gram = tl.load(grid + i[:, None] * NB + i[None, :])
    to_question = tl.load(grid + n * NB + i)
    to_pivot, pivot_length, pivot_question = tl.zeros((NB,), tl.float32), 0.0, 0.0
    if PIVOT:
        to_pivot = tl.load(grid + (n + 1) * NB + i)
        pivot_length, pivot_question = tl.load(grid + (n + 1) * NB + n + 1), tl.load(grid + n * NB + n + 1)
    used = (j < k)[:, None] & (i < n)[None, :]
    own = (first + j)[:, None] * pitch + i[None, :]
    centre = tl.zeros((KB, NB), tl.float32)
    for branch in tl.static_range(LEVELS):
        region = video * regions + tl.load(region_of_patch + branch * patches + patch)
        centre += tl.load(rows + region * supports * pitch + own, mask=used, other=0.0) * (1.0 / LEVELS)
    centre_form = tl.dot(centre, gram, input_precision=PRECISION)
    for branch in range(LEVELS):
        region = video * regions + tl.load(region_of_patch + branch * patches + patch)
        at = rows + region * supports * pitch + own
        row = tl.load(at, mask=used, other=0.0)
        here = moments + (((video * patches + patch) * supports + first + j) * LEVELS + branch) * MOMENTS
        form = tl.dot(row, gram, input_precision=PRECISION)
        length = tl.sum(row * (form + 2.0 * to_pivot[None, :]), 1) + pivot_length
        tl.store(here, tl.maximum(length, 0.0), mask=j < k)
        tl.store(here + 2, tl.maximum(tl.sum((row - centre) * (form - centre_form), 1), 0.0), mask=j < k)
        tl.store(here + 3, tl.sum(row * to_question[None, :], 1) + pivot_question, mask=j < k)
        step = row - tl.load(at - pitch, mask=used & (j > 0)[:, None], other=0.0)
        change = tl.sum(step * tl.dot(step, gram, input_precision=PRECISION), 1)
        tl.store(here + 1, tl.maximum(change, 0.0), mask=(j < k) & (j > 0))


@kernel
def _jumps(
    edges,
    budgets,
    moments,
    patches,
    supports,
    dim,
    M,
    LEVELS: tl.constexpr,
    MB: tl.constexpr,
    JB: tl.constexpr,
    DB: tl.constexpr,
):
    """The change of every segment's first support: its distance from the last one before it."""
    patch, video = tl.program_id(0), tl.program_id(1).to(tl.int64)
    pair, m, d = tl.arange(0, JB), tl.arange(0, MB), tl.arange(0, DB)
    boundary, branch = pair // LEVELS, pair % LEVELS
    real = pair < (M - 1) * LEVELS
    place = video * patches + patch
    last = ((place * M + boundary) * 2 + 1) * LEVELS + branch
    first = ((place * M + boundary + 1) * 2) * LEVELS + branch
    total = tl.zeros((JB, DB), tl.float32)
    for channel in range(0, dim, DB):
        inside = real[:, None] & (channel + d < dim)[None, :]
        a = tl.load(edges + first[:, None] * dim + channel + d[None, :], mask=inside, other=0.0)
        b = tl.load(edges + last[:, None] * dim + channel + d[None, :], mask=inside, other=0.0)
        total += (a - b) * (a - b)
    given = tl.load(budgets + video * M + m, mask=m < M, other=0).to(tl.int32)
    after = tl.sum(tl.where(m[None, :] <= boundary[:, None], given[None, :], 0), 1)
    tl.store(moments + ((place * supports + after) * LEVELS + branch) * MOMENTS + 1, tl.sum(total, 1), mask=real)


def branch_moments(
    x: Float[Tensor, "B N S D"],
    rows: Float[Tensor, "B regions K n"],
    region_of_patch: Int[Tensor, "L S"],
    layout: Layout,
    question: Float[Tensor, "B D"] | None,
) -> Float[Tensor, "B S K L 4"]:
    """Size, change, spread and product with the question of every branch; the first support's change is not set."""
    batch, frames, patches, dim = x.shape
    levels, segments = len(region_of_patch), layout.segments
    moments = torch.empty((batch, patches, layout.supports, levels, MOMENTS.value), device=x.device)
    edges = torch.empty((batch, patches, segments.count, 2, levels, dim), device=x.device)
    halves = x.dtype != torch.float32
    sources, tile = block(segments.longest + 2), min(FORM_ROWS, block(layout.slots))
    products = torch.empty((batch, patches, segments.count, sources, sources), device=x.device)
    asked = x.new_zeros((batch, dim)) if question is None else question.to(x.dtype).contiguous()
    pitch = rows.stride(-2)
    shape = (rows.shape[1], layout.supports, pitch, segments.longest, segments.full, segments.count)
    _products[(patches * segments.count, batch)](
        x,
        rows,
        region_of_patch,
        layout.budgets,
        asked,
        products,
        edges,
        frames,
        patches,
        dim,
        *shape,
        LEVELS=levels,
        HALVES=halves,
        EB=max(EDGE_ROWS, block(2 * levels)),
        MB=block(segments.count),
        NB=max(TILE, sources),
        KEPT=sources,
        DB=128 if halves else 64,
        num_stages=3,
    )
    _forms[(patches * segments.count, triton.cdiv(layout.slots, tile), batch)](
        products,
        rows,
        region_of_patch,
        layout.budgets,
        moments,
        patches,
        *shape,
        LEVELS=levels,
        PIVOT=not halves,
        PRECISION="tf32" if halves else "tf32x3",
        MB=block(segments.count),
        KB=tile,
        NB=sources,
    )
    if segments.count > 1:
        _jumps[(patches, batch)](
            edges,
            layout.budgets,
            moments,
            patches,
            layout.supports,
            dim,
            segments.count,
            LEVELS=levels,
            MB=block(segments.count),
            JB=block((segments.count - 1) * levels),
            DB=CHANNELS,
        )
    return moments
