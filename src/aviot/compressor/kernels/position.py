"""The tables of the positions' residual in one launch, and features plus residual, rounded once, in one pass."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from aviot.config import PositionConfig
from aviot.ot.sinkhorn import block, kernel

PATCHES = 8  # of one program
ROWS, CHANNELS = 16, 128  # of one program's part of the tables


@triton.jit
def _moments(i, count):
    """linspace(-1, 1, count) as torch has it on a GPU, to the last bit: from the front, and from the back."""
    step = tl.div_rn(2.0, tl.maximum(count - 1, 1).to(tl.float32))
    front = tl.fma(i.to(tl.float32), step, -1.0)
    return tl.where((i < count // 2) | (count == 1), front, tl.fma((count - 1 - i).to(tl.float32), -step, 1.0))


@triton.jit
def _places(i, count):
    """2 i / (count - 1) - 1."""
    return tl.div_rn(2.0 * i.to(tl.float32), tl.maximum(count - 1, 1).to(tl.float32)) - 1.0


@triton.jit
def _project(coordinate, weight, d, dim, BANDS: tl.constexpr):
    """W psi(c): sines of all bands, then cosines; `weight` is the coordinate's own columns of [D, 6 bands]."""
    frequency = 3.141592653589793
    total = coordinate[:, None] * tl.zeros_like(d)[None, :].to(tl.float32)
    for band in range(BANDS):
        angle = coordinate * frequency
        for_sine = tl.load(weight + d * 6 * BANDS + band, mask=d < dim, other=0.0).to(tl.float32)
        for_cosine = tl.load(weight + d * 6 * BANDS + BANDS + band, mask=d < dim, other=0.0).to(tl.float32)
        total += tl.sin(angle)[:, None] * for_sine[None, :] + tl.cos(angle)[:, None] * for_cosine[None, :]
        frequency *= 2.0
    return total


@kernel
def _tables(
    weight,
    time,
    place,
    frames,
    rows,
    columns,
    dim,
    alpha,
    TIME_SCALE: tl.constexpr,
    SPACE_SCALE: tl.constexpr,
    BANDS: tl.constexpr,
    RB: tl.constexpr,
    DB: tl.constexpr,
):
    """Some rows of the table over time, or of that over places: the row's code and the column's."""
    d = tl.program_id(1) * DB + tl.arange(0, DB)
    part, of_time = tl.program_id(0), tl.cdiv(frames, RB)
    if part < of_time:
        t = part * RB + tl.arange(0, RB)
        residual = _project(TIME_SCALE * _moments(t, frames), weight, d, dim, BANDS)
        tl.store(
            time + t[:, None] * dim + d[None, :], alpha * residual, mask=(t < frames)[:, None] & (d < dim)[None, :]
        )
    else:
        s = (part - of_time) * RB + tl.arange(0, RB)
        height = _project(SPACE_SCALE * _places(s // columns, rows), weight + 2 * BANDS, d, dim, BANDS)
        width = _project(SPACE_SCALE * _places(s % columns, columns), weight + 4 * BANDS, d, dim, BANDS)
        inside = (s < rows * columns)[:, None] & (d < dim)[None, :]
        tl.store(place + s[:, None] * dim + d[None, :], alpha * (height + width), mask=inside)


@kernel
def _add_residual(u, time, place, x, frames, patches, dim, SB: tl.constexpr, DB: tl.constexpr):
    """u + time + place of some patches of one frame, in that order."""
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
    """u + time + place; the tables are float32."""
    u = u.contiguous()
    x = torch.empty_like(u)
    (frames, dim), patches = time.shape, len(place)
    grid = (triton.cdiv(patches, PATCHES), u.numel() // (patches * dim))
    _add_residual[grid](u, time.contiguous(), place.contiguous(), x, frames, patches, dim, SB=PATCHES, DB=block(dim))
    return x


def position_tables(
    weight: Float[Tensor, "D code"], frames: int, grid: tuple[int, int], config: PositionConfig, alpha: float
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "S D"]]:
    """The residual's table over time and that over places, float32, times alpha."""
    patches, dim = grid[0] * grid[1], len(weight)
    time, place = (torch.empty((n, dim), dtype=torch.float32, device=weight.device) for n in (frames, patches))
    programs = (triton.cdiv(frames, ROWS) + triton.cdiv(patches, ROWS), triton.cdiv(dim, CHANNELS))
    _tables[programs](
        weight.contiguous(),
        time,
        place,
        frames,
        *grid,
        dim,
        alpha,
        TIME_SCALE=config.temporal_scale,
        SPACE_SCALE=config.spatial_scale,
        BANDS=config.bands,
        RB=ROWS,
        DB=CHANNELS,
    )
    return time, place
