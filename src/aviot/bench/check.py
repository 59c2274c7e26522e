"""The check before any timing: the compressor against the float64 reference, on the timed device and type."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aviot.config import CompressorConfig
from aviot.methods.aviot import Compressor
from aviot.methods.aviot.reference import compress_reference

ODD = CompressorConfig(dim=24, cost_dim=16, grid=(5, 7), regions=((1, 1), (2, 3), (5, 7)))
ODD_FRAMES = 37
OWN_FRAMES = 13  # few, because the reference loops: at the paper's size they take seconds
RATIO = 4.0
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-2}  # relative errors of the features
GRADIENT_LIMITS = {torch.float32: 1e-3, torch.bfloat16: 2e-2, torch.float16: 2e-2}


class CheckFailed(RuntimeError):
    """Raised if the compressor differs from the reference, which makes its speed meaningless."""


@dataclass(frozen=True)
class Checked:
    """One passed comparison: relative errors against the reference, and their limits."""

    case: str
    path: tuple[int, ...]
    feature_error: float
    feature_limit: float
    gradient_error: float | None
    gradient_limit: float | None


def check_compressor(
    compressor: Compressor, dtype: torch.dtype, *, generator: torch.Generator, backward: bool
) -> tuple[Checked, ...]:
    """Compare a small compressor of odd sizes, with gradients if they are timed, and then the timed one.

    Weights and inputs are drawn from `generator`, a generator on the CPU. Raises CheckFailed.
    """
    device = compressor.region_position.weight.device
    odd = Compressor(ODD)
    with torch.no_grad():
        for parameter in odd.parameters():  # some weights are initialised to zero and would not be tested
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    odd = odd.to(device, next(compressor.parameters()).dtype)
    return (
        _compare("odd sizes", odd, ODD_FRAMES, dtype, generator, backward=backward),
        _compare("the timed weights", compressor, OWN_FRAMES, dtype, generator, backward=False),
    )


def _compare(
    case: str, compressor: Compressor, frames: int, dtype: torch.dtype, generator: torch.Generator, *, backward: bool
) -> Checked:
    config, device = compressor.config, compressor.region_position.weight.device
    x = torch.randn(frames, config.patches, config.dim, generator=generator).to(dtype)
    question = torch.randn(config.dim, generator=generator).to(dtype)
    relevance = torch.rand(frames, generator=generator)
    given = x.to(device, copy=True).requires_grad_(backward)
    exact = x.double().requires_grad_(backward)
    weights = {name: parameter.detach().cpu() for name, parameter in compressor.named_parameters()}
    with torch.set_grad_enabled(backward):
        out = compressor(given, question=question.to(device), relevance=relevance.to(device), ratio=RATIO)
        expected = compress_reference(config, weights, exact, question=question, relevance=relevance, ratio=RATIO)
    if not out.features.isfinite().all():
        raise CheckFailed(f"{case}: the compressed features are not finite; nothing was timed")
    if (out.path, out.budgets) != (expected.path, expected.budgets):
        raise CheckFailed(
            f"{case}: budgets must be the float64 reference's {expected.budgets} along {expected.path}, "
            f"got {out.budgets} along {out.path}; nothing was timed"
        )
    error = _checked_error(case, "features", out.features, expected.features, LIMITS[dtype])
    gradient = None
    if backward:
        (out.features.float().square().mean() + out.loss.sum()).backward()
        (expected.features.square().mean() + expected.loss).backward()
        gradient = _checked_error(case, "gradients", _grad(given), _grad(exact), GRADIENT_LIMITS[dtype])
    limit = GRADIENT_LIMITS[dtype] if backward else None
    return Checked(case, out.path, error, LIMITS[dtype], gradient, limit)


def _checked_error(case: str, what: str, found: Tensor, expected: Tensor, limit: float) -> float:
    """Return the relative error; raise CheckFailed if it exceeds the limit or is NaN."""
    difference = found.detach().cpu().double() - expected.detach()
    error = float(difference.norm() / expected.detach().norm())
    if not error <= limit:
        raise CheckFailed(
            f"{case}: {what} must be within {limit:g} of the float64 reference, relatively, got {error:.2g}; "
            "nothing was timed"
        )
    return error


def _grad(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
