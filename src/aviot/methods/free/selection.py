"""The gain of each token, and the tokens that a budget keeps by it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.free.geometry import Geometry
from aviot.methods.free.parameters import FreeParameters


def log_mass(cosine: Float[Tensor, "T S"], parameters: FreeParameters) -> Float[Tensor, "T S"]:
    """Return log a_i = kappa (rho_i - mean rho) / (sigma + sigma_0), with sigma the deviation of rho over the video.

    Where the question says nothing of this video, sigma is small and all masses are alike. Dividing by sigma alone
    would give noise the weight of evidence.
    """
    spread = cosine.std(correction=0) + parameters.evidence
    return parameters.relevance * (cosine - cosine.mean()) / spread


def log_gains(measured: Geometry, parameters: FreeParameters) -> Float[Tensor, "T S"]:
    """Return log g_i = log a_i + (1 - eta) log s_i + eta log delta_i."""
    tiny = torch.finfo(measured.to_mean.dtype).tiny
    far, apart = (values.clamp_min(tiny).log() for values in (measured.to_mean, measured.to_nearest))
    gains = (1 - parameters.coverage) * far + parameters.coverage * apart
    return gains if measured.cosine is None else gains + log_mass(measured.cosine, parameters)


def largest(gains: Float[Tensor, "T S"], count: int) -> Int[Tensor, "count"]:
    """Return the flat indices of the tokens with the largest gains, in ascending order; the first of equal ones.

    Each frame keeps its best one, if the count has room for that.
    """
    if count >= len(gains):
        best = gains.argmax(1, keepdim=True)
        gains = gains.scatter(1, best, torch.inf)
    return gains.flatten().argsort(descending=True, stable=True)[:count].sort().values
