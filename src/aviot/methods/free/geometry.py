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

    Features are read twice: for the means, and frame by frame for the products. Nothing here has a gradient.
    """
    x, dtype = x.detach(), working_dtype(x.dtype)
    means = x.mean(1, dtype=dtype)
    offsets = means - means.mean(0)
    unit = None if question is None else torch.nn.functional.normalize(question.to(x.device, dtype), dim=0)
    step = max(1, ELEMENTS // (x.shape[1] * max(x.shape[1:])))
    parts = [
        _frames(some, mean, offset, unit)
        for some, mean, offset in zip(x.split(step), means.split(step), offsets.split(step), strict=True)
    ]
    to_mean, to_nearest, cosine = (torch.cat(values) for values in zip(*parts, strict=True))
    return Geometry(to_mean, to_nearest, None if question is None else cosine)


def _frames(
    x: Float[Tensor, "F S D"],
    means: Float[Tensor, "F D"],
    offsets: Float[Tensor, "F D"],
    unit: Float[Tensor, "D"] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure some frames, whose means lie `offsets` from the video's.

    The question and a frame's offset stand below its centred tokens, so that one product has all that is needed.
    """
    frames, size, width = x.shape
    rows = means.new_empty(frames, size if unit is None else size + 2, width)
    torch.sub(x, means[:, None], out=rows[:, :size])
    if unit is not None:
        rows[:, size], rows[:, size + 1] = unit, offsets
    products = torch.bmm(rows, rows.mT)
    squares = products.diagonal(dim1=1, dim2=2)[:, :size].clone()
    mine, other = squares[:, :, None], squares[:, None, :]
    apart = torch.add(mine, products[:, :size, :size], alpha=-2).add_(other)
    nearest = apart.masked_fill_(does_not_come_before(squares), torch.inf).amin(2).clamp_(min=0).minimum(squares)
    if unit is None:
        return squares.sqrt(), nearest.sqrt(), squares
    dot = products[:, :size, size] + products[:, size, size + 1, None]
    lengths = squares + 2 * products[:, :size, size + 1] + products[:, size + 1, size + 1, None]
    return squares.sqrt(), nearest.sqrt(), dot / lengths.clamp_min(torch.finfo(rows.dtype).tiny).sqrt()


def does_not_come_before(squares: Float[Tensor, "F S"]) -> Bool[Tensor, "F S S"]:
    """Return at [t,i,j] whether token j of frame t does not come before token i."""
    mine, other = squares[:, :, None], squares[:, None, :]
    place = torch.arange(squares.shape[1], device=squares.device)
    return torch.where(place < place[:, None], other < mine, other <= mine)
