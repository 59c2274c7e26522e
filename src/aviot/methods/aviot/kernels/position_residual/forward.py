"""Kernel and launch of the position residual.

Sizes such as NB are explained in the docstring of `aviot.methods.aviot.kernels`.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.ot.sinkhorn import block, kernel

PATCHES = 8  # of one program


@kernel
def add_residual_tile(u, time, place, x, frames, patches, dim, SB: tl.constexpr, DB: tl.constexpr):
    """Add u + time + place for some patches of one frame, in that order."""
    frame = tl.program_id(1).to(tl.int64)
    s, d = tl.program_id(0) * SB + tl.arange(0, SB), tl.arange(0, DB)
    mask = (s < patches)[:, None] & (d < dim)[None, :]
    at = (frame * patches + s)[:, None] * dim + d[None, :]
    moment = tl.load(time + (frame % frames) * dim + d, mask=d < dim, other=0.0)
    where = tl.load(place + s[:, None] * dim + d[None, :], mask=mask, other=0.0)
    features = tl.load(u + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(x + at, features + moment[None, :] + where, mask=mask)


def add_residual(
    u: Float[Tensor, "*B T S D"], time: Float[Tensor, "T D"], place: Float[Tensor, "S D"]
) -> Float[Tensor, "*B T S D"]:
    """Return u + time + place; the tables are float32."""
    u = u.contiguous()
    x = torch.empty_like(u)
    (frames, dim), patches = time.shape, len(place)
    grid = (triton.cdiv(patches, PATCHES), u.numel() // (patches * dim))
    add_residual_tile[grid](
        u, time.contiguous(), place.contiguous(), x, frames, patches, dim, SB=PATCHES, DB=block(dim)
    )
    return x
