"""Kernel and launch of the patches' motion.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.kernels.device_functions import SMALLEST_NORM
from aviot.methods.aviot.numerics import working_dtype
from aviot.ot.sinkhorn import block, kernel

FRAMES = 28  # steps of one program


@kernel
def motion_sums(u, sums, frames, patches, dim, FRAMES: tl.constexpr, DB: tl.constexpr):
    """Sum the cosine distances over some of one patch's steps in time."""
    patch, part, video = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    d = tl.arange(0, DB)
    precision = sums.dtype.element_ty
    at = u + (video * frames * patches + patch) * dim + d
    first = part * FRAMES
    a = tl.load(at + first.to(tl.int64) * patches * dim, mask=d < dim, other=0.0).to(precision)
    length = tl.maximum(tl.sqrt(tl.sum(a * a, 0)), SMALLEST_NORM)
    total = tl.zeros((), precision)
    for step in range(1, FRAMES + 1):
        there = first + step < frames
        b = tl.load(at + (first + step).to(tl.int64) * patches * dim, mask=d < tl.where(there, dim, 0), other=0.0).to(
            precision
        )
        other = tl.maximum(tl.sqrt(tl.sum(b * b, 0)), SMALLEST_NORM)
        total += tl.where(there, 1.0 - tl.sum(a * b, 0) / (length * other), 0.0)
        a, length = b, other
    tl.store(sums + (video * tl.num_programs(1) + part) * patches + patch, total)


@torch.no_grad()
def patch_motion(u: Float[Tensor, "B T S D"]) -> Float[Tensor, "B S"]:
    """Return the mean cosine distance between successive frames at each patch; T is at least two."""
    u = u.contiguous()
    batch, frames, patches, dim = u.shape
    parts = triton.cdiv(frames - 1, FRAMES)
    sums = u.new_empty((batch, parts, patches), dtype=working_dtype(u.dtype))
    motion_sums[(patches, parts, batch)](u, sums, frames, patches, dim, FRAMES=FRAMES, DB=block(dim))
    return sums.sum(1) / (frames - 1)
