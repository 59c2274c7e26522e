"""Numerical helpers of several parts of the compressor: precision, distances, cosine."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.ot.device import on_gpu


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision that features of this type are solved in: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Disable autocast and TF32 matrix products inside the block.

    The TF32 switch belongs to the process: while a compression is being queued, products of other threads are in full
    precision too.
    """
    autocast = torch.amp.is_autocast_available(device.type)
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    if device.type == "cuda":
        products.fp32_precision = "ieee"
    try:
        with torch.autocast(device.type, enabled=False) if autocast else nullcontext():
            yield
    finally:
        if device.type == "cuda":
            products.fp32_precision = before


def idle(weights: Iterable[Tensor], device: torch.device) -> Float[Tensor, ""]:
    """Return zero, with a zero gradient for every weight that is trained.

    Some batches do not use all weights, but distributed training needs the same gradients from each rank.
    """
    trained = (weight.flatten()[:0].sum() for weight in weights if weight.requires_grad)
    return sum(trained, torch.zeros((), device=device))


def squared_distances(a: Float[Tensor, "... N D"], b: Float[Tensor, "... k D"]) -> Float[Tensor, "... N k"]:
    """Return pairwise squared Euclidean distances by direct differences.

    Expanding the square into products is faster, but where points nearly coincide it loses the distance to rounding.
    """
    return _SquaredDistances.apply(a, b)


class _SquaredDistances(torch.autograd.Function):
    """Direct differences forward; backward as two products, which need no [N, k, D] buffer.

    With G the incoming gradient, dA = 2 (A * rowsum(G) - G B) and dB = 2 (B * colsum(G) - G^T A). Both are the same for
    points shifted together, and shifting them to their mean keeps the cancellation inside the points' own spread.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        if on_gpu(a):
            from aviot.methods.aviot.kernels import squared_distances as kernel  # needs triton

            return kernel.squared_distances(a, b)
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (gradient,) = gradients
        a, b = ctx.saved_tensors
        centre = a.mean(-2, keepdim=True)
        a, b = a - centre, b - centre
        to_a = to_b = None
        if ctx.needs_input_grad[0]:
            to_a = 2 * (a * gradient.sum(-1)[..., None] - gradient @ b)
        if ctx.needs_input_grad[1]:
            to_b = 2 * (b * gradient.sum(-2)[..., None] - gradient.mT @ a)
        return to_a, to_b


def cosine(a: Float[Tensor, "... D"], b: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """Return the cosine of the angle between a and b; zero for a vector of length zero."""
    return torch.cosine_similarity(a, b, dim=-1, eps=1e-8)


def summary_of(tensor: Tensor) -> str:
    """Return a tensor's type and shape as text: `float32[12, 729, 64]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
