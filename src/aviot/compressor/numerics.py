"""Small numerical tools that more than one part of the compressor needs."""

from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision that features of this type are solved in: float32, or float64 if they have it."""
    return torch.promote_types(dtype, torch.float32)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Keep an outer autocast from lowering the solve's precision."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def apply_in_input_precision(layers: nn.Sequential, x: Float[Tensor, "... D"]) -> Float[Tensor, "... E"]:
    """Run linear, normalisation and activation layers in x's precision, whatever type their weights are stored in."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            x = F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
        elif isinstance(layer, nn.LayerNorm):
            weight, bias = layer.weight.to(x.dtype), layer.bias.to(x.dtype)
            x = F.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)
        else:
            x = layer(x)
    return x


def plogp(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """p log p with 0 log 0 = 0, and a finite gradient at zero (where the true one is infinite)."""
    return p * p.clamp_min(torch.finfo(p.dtype).tiny).log()


def squared_distances(a: Float[Tensor, "... N D"], b: Float[Tensor, "... k D"]) -> Float[Tensor, "... N k"]:
    """Pairwise squared Euclidean distances by direct differences.

    Expanding the square into products is faster, but where points nearly coincide it loses the distance and its
    gradient to rounding.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
