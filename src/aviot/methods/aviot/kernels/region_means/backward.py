"""Kernel that spreads the means' gradient over the patches."""

import triton.language as tl

from aviot.methods.aviot.kernels.common import grid_kernel


@grid_kernel
def spread_gradient(
    gradient,
    beside,
    grad_x,
    region_of_patch,
    share,
    frames,
    patches,
    dim,
    regions,
    LEVELS: tl.constexpr,
    BESIDE: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    """Sum a patch's gradient: its regions' at all granularities, each over the region's patches, and `beside`."""
    tiles = tl.cdiv(frames, BN)
    tile, video = tl.program_id(1) % tiles, (tl.program_id(1) // tiles).to(tl.int64)
    patch = tl.program_id(0)
    n, d = tile * BN + tl.arange(0, BN), tl.program_id(2) * BD + tl.arange(0, BD)
    inside = (n < frames)[:, None] & (d < dim)[None, :]
    total = tl.zeros((BN, BD), tl.float32)
    for level in tl.static_range(LEVELS):
        region = tl.load(region_of_patch + level * patches + patch)
        source = ((video * regions + region) * frames + n)[:, None] * dim + d[None, :]
        total += tl.load(gradient + source, mask=inside, other=0.0) * tl.load(share + region)
    target = ((video * frames + n) * patches + patch)[:, None] * dim + d[None, :]
    if BESIDE:
        total += tl.load(beside + target, mask=inside, other=0.0).to(tl.float32)
    tl.store(grad_x + target, total, mask=inside)
