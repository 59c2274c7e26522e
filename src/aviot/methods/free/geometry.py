"""The transport costs inside each frame, and each token's cosine with the question, frame by frame in few products."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aviot.methods.aviot.numerics import working_dtype

ELEMENTS = 2**26  # of the largest intermediate result, 256 MB in float32


@dataclass(frozen=True, eq=False)
class Geometry:
    """Distances inside each frame.

    `to_mean` is each token's distance to its frame's mean, `to_nearest` that to the mean or to the nearest token that
    comes before it, whichever is less. Token j comes before i if it is farther from the mean, or as far and first.
    `cosine` is each token's with the question, None without one.
    """

    to_mean: Float[Tensor, "T S"]
    to_nearest: Float[Tensor, "T S"]
    cosine: Float[Tensor, "T S"] | None


def geometry(x: Float[Tensor, "T S D"], question: Float[Tensor, "D"] | None) -> Geometry:
    """Measure a video's tokens, in float32 or better.

    With m_t the mean of frame t, m that of all frames, c_i = x_i - m_t and G = c c^T,

        s_i = sqrt(G_ii)    d_ij^2 = G_ii + G_jj - 2 G_ij    delta_i = min(s_i, min over j before i of d_ij)
        rho_i = cos(x_i - m, q)

    Features are read twice: for the means, and frame by frame for the products.
    """
    dtype = working_dtype(x.dtype)
    means = x.mean(1, dtype=dtype)
    offsets = means - means.mean(0)
    unit = None if question is None else torch.nn.functional.normalize(question.to(x.device, dtype), dim=0)
    step = max(1, ELEMENTS // (x.shape[1] * max(x.shape[1:])))
    parts = [
        _frames(some - mean[:, None], offset, unit)  # one launch: the difference has the means' type
        for some, mean, offset in zip(x.split(step), means.split(step), offsets.split(step), strict=True)
    ]
    to_mean, to_nearest, cosine = (torch.cat(values) for values in zip(*parts, strict=True))
    return Geometry(to_mean, to_nearest, None if question is None else cosine)


def _frames(
    c: Float[Tensor, "F S D"], offset: Float[Tensor, "F D"], unit: Float[Tensor, "D"] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure some frames: `c` are tokens less their frame's mean, `offset` frame means less the video's."""
    gram = torch.bmm(c, c.mT)
    squares = gram.diagonal(dim1=1, dim2=2).clone()
    apart = gram.mul_(-2).add_(squares[:, :, None]).add_(squares[:, None, :]).clamp_(min=0)
    apart.masked_fill_(~comes_before(squares), torch.inf)
    nearest = apart.amin(2).minimum(squares)
    if unit is None:
        return squares.sqrt(), nearest.sqrt(), squares
    along = torch.bmm(c, torch.stack((unit.expand_as(offset), offset), 2))  # [F,S,2]
    dot = along[..., 0] + (offset @ unit)[:, None]
    lengths = squares + 2 * along[..., 1] + offset.square().sum(1)[:, None]
    return squares.sqrt(), nearest.sqrt(), dot / lengths.clamp_min(torch.finfo(c.dtype).tiny).sqrt()


def comes_before(squares: Float[Tensor, "F S"]) -> Bool[Tensor, "F S S"]:
    """Return at [t,i,j] whether token j of frame t comes before token i."""
    mine, other = squares[:, :, None], squares[:, None, :]
    place = torch.arange(squares.shape[1], device=squares.device)
    return (other > mine) | ((other == mine) & (place < place[:, None]))
