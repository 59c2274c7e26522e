"""The gate's seven statistics of a branch, at every support and position.

They need only lengths and distances of a branch Y = A X, and those are quadratic forms: with G the Gram matrix of a
patch's sources, ||sum_i w_i x_i||^2 = w G w. So the branches are never computed. Differences are taken between rows of
weights, before the form, and G between sources less their segment's mean, so that the distances of supports that nearly
coincide, or of scenes that stand still, are not lost to rounding.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot.segments import Layout

PER_BRANCH = 7
BOUND = 5.0  # of relative distances, of log magnitudes, and of the whole vector
SMALLEST_RMS = 1e-6
SMALLEST_NORM = 1e-8


@dataclass(frozen=True)
class Moments:
    """Squared lengths and distances of the branches, over channels."""

    size: Float[Tensor, "B S L K"]  # ||Y||^2
    change: Float[Tensor, "B S L K"]  # ||Y_j - Y_{j-1}||^2; the first support's is not set
    spread: Float[Tensor, "B S L K"]  # ||Y - mean of the branches||^2
    question_product: Float[Tensor, "B S L K"] | None  # Y q


def branch_moments(
    x: Float[Tensor, "B S M n D"],
    rows: Float[Tensor, "B S M L k n"],
    layout: Layout,
    question: Float[Tensor, "B D"] | None,
) -> Moments:
    """Return the moments of Y = A X for all granularities: sources in segments, rows of A in slots."""
    levels, slots = rows.shape[3:5]
    mean = x.sum(-2, keepdim=True) / layout.sizes.to(x.dtype)[:, None, None]  # padding is zero
    centred = x - mean
    gram = centred @ centred.mT
    to_mean = (centred * mean).sum(-1, keepdim=True)  # [B,S,M,n,1]; a product with one column is slower on a CPU

    def form(weights: Tensor) -> Tensor:
        flat = weights.flatten(3, 4)
        return ((flat @ gram) * flat).sum(-1).clamp_min(0).unflatten(-1, (levels, slots))

    def along(values: Tensor) -> Tensor:
        return (rows.flatten(3, 4) @ values)[..., 0].unflatten(-1, (levels, slots))

    def packed(values: Tensor) -> Tensor:
        return layout.pack(values.transpose(2, 3).flatten(1, 2)[..., None])[..., 0].unflatten(1, (-1, levels))

    length = form(rows) + 2 * along(to_mean) + mean.square().sum((-2, -1))[..., None, None]
    step = form(torch.diff(rows, dim=-2, prepend=rows[..., :1, :]))
    step[..., 1:, :, 0] = _jumps(x, rows, layout)
    return Moments(
        size=packed(length.clamp_min(0)),
        change=packed(step),
        spread=packed(form(rows - rows.mean(3, keepdim=True))),
        question_product=None if question is None else packed(along(_times(x, question))),
    )


def _times(x: Float[Tensor, "B S M n D"], question: Float[Tensor, "B D"]) -> Float[Tensor, "B S M n 1"]:
    """Return x q, as one product for each video of the batch."""
    return (x.flatten(1, 3) @ question[..., None]).unflatten(1, x.shape[1:4])


def _jumps(
    x: Float[Tensor, "B S M n D"], rows: Float[Tensor, "B S M L k n"], layout: Layout
) -> Float[Tensor, "B S M-1 L"]:
    """Return ||Y_first - Y_last||^2 across each boundary between segments."""
    last = (layout.budgets - 1)[:, None, :, None, None, None]
    edges = torch.cat((rows[..., 0, :], rows.take_along_dim(last, -2)[..., 0, :]), 3) @ x  # [B,S,M,2L,D]
    first, end = edges.chunk(2, 3)
    return (first[:, :, 1:] - end[:, :, :-1]).square().sum(-1)


def gate_statistics(
    moments: Moments,
    entropy: Float[Tensor, "B S L K"],
    question: Float[Tensor, "B D"] | None,
    dim: int,
) -> Float[Tensor, "B S K features"]:
    """Return seven numbers per branch, one branch after the other, bounded to +-5.

    1 relative change from the previous support (the first takes the second's; zero when alone);
    2 entropy of the support's distribution over log N;
    3, 4 relative distance and cosine distance to the mean of the branches;
    5 cosine to the question (zero without one);
    6 log magnitude relative to the branches' mean magnitude;
    7 which branch this is, from -1 (coarsest) to 1 (finest).
    """
    size = moments.size
    centre = (size.mean(2, keepdim=True) - moments.spread.mean(2, keepdim=True)).clamp_min(0)
    magnitude = _rms(size, dim)
    change = torch.zeros_like(size)
    if size.shape[-1] > 1:
        change[..., 1:] = _relative(moments.change[..., 1:], magnitude[..., 1:], magnitude[..., :-1], dim)
        change[..., 0] = change[..., 1]
    question_cosine = torch.zeros_like(size)
    if moments.question_product is not None and question is not None:
        question_cosine = _cosine(moments.question_product, size, question.square().sum(-1)[:, None, None, None])
    identity = torch.linspace(-1, 1, size.shape[2], device=size.device, dtype=size.dtype)
    columns = (
        change,
        entropy,
        _relative(moments.spread, magnitude, _rms(centre, dim), dim),
        (1 - _cosine((size + centre - moments.spread) / 2, size, centre)).clamp(0, 2),
        question_cosine.clamp(-1, 1),
        torch.log(magnitude / magnitude.mean(2, keepdim=True)),
        identity[:, None].expand_as(size),
    )
    return torch.stack(columns, -1).clamp(-BOUND, BOUND).transpose(2, 3).flatten(-2)


def _rms(squares: Tensor, dim: int) -> Tensor:
    """Return the root mean square over channels, with a floor."""
    return (squares / dim).clamp_min(SMALLEST_RMS**2).sqrt()


def _relative(squares: Tensor, a: Tensor, b: Tensor, dim: int) -> Tensor:
    """Return the rms of the difference over the mean of the two rms."""
    return _rms(squares, dim) / ((a + b) / 2).clamp_min(SMALLEST_RMS)


def _cosine(product: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine from a product and two squared lengths; zero for a vector of length zero."""
    return product / (a.sqrt().clamp_min(SMALLEST_NORM) * b.sqrt().clamp_min(SMALLEST_NORM))
