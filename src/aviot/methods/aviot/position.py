"""Time-height-width position: a learned Fourier residual on the vision features, initialised to zero."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aviot.config import CompressorConfig, check_config
from aviot.methods.aviot.inputs import check_features
from aviot.methods.aviot.numerics import full_precision, working_dtype
from aviot.methods.aviot.schedule import ramp
from aviot.ot.device import on_gpu

FRAMES_AT_ONCE = 8  # their float32 sum, 27 MB at the paper's size, stays in a large cache between the additions


class PositionEncoder(nn.Module):
    """X = U + alpha W [psi(a_t t); psi(a_h h); psi(a_w w)] (eq:supp_thw_residual).

    The projection is linear, so the residual is the sum of a table over time, one over rows and one over columns:
    T + H + W vectors of D instead of T * H * W codes of 96.
    """

    def __init__(self, config: CompressorConfig) -> None:
        super().__init__()
        self.config = check_config(config)
        self.proj = nn.Linear(3 * 2 * config.position.bands, config.dim, bias=False)
        nn.init.zeros_(self.proj.weight)

    def forward(self, u: Float[Tensor, "*B T S D"], *, step: int | None = None) -> Float[Tensor, "*B T S D"]:
        """Add their positions to vision features; `step` is the training step of the warm-up, None: it is over."""
        check_features(u, self.config, self.proj.weight.device)
        with full_precision(u.device):
            return self._add_positions(u, ramp(step, self.config.warmup_steps))

    def _add_positions(self, u: Float[Tensor, "*B T S D"], alpha: float) -> Float[Tensor, "*B T S D"]:
        dtype = working_dtype(u.dtype)
        rows, columns = self.config.grid
        scale = self.config.position
        weights = self.proj.weight.to(dtype).chunk(3, -1)
        coordinates = (
            scale.temporal_scale * torch.linspace(-1, 1, u.shape[-3], device=u.device, dtype=torch.float32),
            scale.spatial_scale * _centred(rows, u.device),
            scale.spatial_scale * _centred(columns, u.device),
        )
        time, height, width = (
            F.linear(fourier(coordinate, scale.bands).to(dtype), weight)
            for coordinate, weight in zip(coordinates, weights, strict=True)
        )
        place = (height[:, None] + width).flatten(0, 1)  # [S,D]
        return add_residual(u, alpha * time, alpha * place)


def add_residual(
    u: Float[Tensor, "*B T S D"], time: Float[Tensor, "T D"], place: Float[Tensor, "S D"]
) -> Float[Tensor, "*B T S D"]:
    """Return x_ts = (u_ts + time_t) + place_s in the tables' precision, rounded once to the features'.

    Without a gradient in chunks of frames: the unrounded sum of all would take as much memory as the features.
    """
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (u, time, place)):
        return (u + time[:, None] + place).to(u.dtype)
    if on_gpu(u) and time.dtype == torch.float32:
        from aviot.methods.aviot.kernels import position_residual as kernel  # needs triton

        return kernel.add_residual(u, time, place)
    x = torch.empty_like(u)
    for first in range(0, len(time), FRAMES_AT_ONCE):
        frames = slice(first, first + FRAMES_AT_ONCE)
        torch.add(u[..., frames, :, :] + time[frames, None], place, out=x[..., frames, :, :])
    return x


def fourier(coordinate: Float[Tensor, "n"], bands: int) -> Float[Tensor, "n code"]:
    """Return psi(c) = sin(2^b pi c), then cos(2^b pi c), b = 0 .. bands - 1 (eq:supp_fourier_map).

    Always in float32: 2^15 pi magnifies the last bit of c, and published weights were trained with that bit.
    """
    frequency = torch.pi * 2.0 ** torch.arange(bands, device=coordinate.device, dtype=torch.float32)
    angle = coordinate[:, None] * frequency
    return torch.cat((angle.sin(), angle.cos()), -1)


def _centred(count: int, device: torch.device) -> Float[Tensor, "count"]:
    """Return 2 i / (n - 1) - 1 in float32; a single coordinate is -1."""
    return 2 * torch.arange(count, device=device, dtype=torch.float32) / max(count - 1, 1) - 1
