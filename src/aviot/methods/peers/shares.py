"""Whole numbers in proportion to weights: how many tokens each segment, frame or word gets."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NOTHING = 1e-8  # weights that sum to less are no weights
ROUNDS = 16  # of sharing out what did not fit


def integer_shares(
    weights: Float[Tensor, "*B n"], totals: Int[Tensor, "*B"], mask: Bool[Tensor, "*B n"] | None = None
) -> Int[Tensor, "*B n"]:
    """Return whole numbers that sum to each total and are nearly proportional to the weights.

    Shares are floored, and one each is added to the largest fractions (the first of equal ones). Negative weights are
    zero; if all are about zero, the shares are equal. Entries that are masked out (False) get nothing.
    """
    present = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask
    own = weights.float().clamp(min=0).masked_fill(~present, 0.0)
    own = torch.where(own.sum(-1, keepdim=True) < NOTHING, present.to(own.dtype), own)
    exact = totals[..., None] * own / own.sum(-1, keepdim=True).clamp(min=NOTHING)
    shares = exact.floor()
    fraction = (exact - shares).masked_fill(~present, -1.0)
    rank = fraction.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    shares = shares.long()
    return shares + ((rank < (totals - shares.sum(-1))[..., None]) & present)


def capped_shares(weights: Float[Tensor, "n"], total: int, room: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
    """Return shares of at most `room` each; what does not fit is shared out again among entries with room."""
    given = torch.zeros_like(room)
    for _ in range(ROUNDS):
        left, free = total - int(given.sum()), given < room
        if left <= 0 or not bool(free.any()):
            break
        more = integer_shares(weights, torch.tensor(left), free).minimum(room - given)
        if not int(more.sum()):
            break
        given += more
    return given
