"""AOT's transport plans: plain scaling updates that stop early, over problems of different sizes at once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

EPSILON = 0.1
ITERATIONS = 100
TOLERANCE = 1e-2  # of the mean change of the rows' scaling; loose, so it decides the plan
CHECK_EVERY = 8  # iterations between looks at whether all have stopped, which wait for a GPU


def transport(
    cost: Float[Tensor, "B n m"],
    rows: Bool[Tensor, "B n"] | None = None,
    columns: Bool[Tensor, "B m"] | None = None,
    *,
    together: bool = False,
) -> Float[Tensor, "B n m"]:
    """Return plans between uniform masses of the rows and columns that exist; by default, all do.

    From ones on, the rows' scaling is updated, then the columns', until the mean change of the rows' is below the
    tolerance: each problem's own, or that of all of them together. `aviot.ot.solve` serves other problems: it iterates
    a fixed number of times, with relaxed marginals.
    """
    rows = torch.ones_like(cost[:, :, 0], dtype=torch.bool) if rows is None else rows
    columns = torch.ones_like(cost[:, 0], dtype=torch.bool) if columns is None else columns
    kernel = (-cost / EPSILON).exp().masked_fill(~(rows[:, :, None] & columns[:, None]), 0.0)
    sizes = [side.sum(1, keepdim=True) for side in (rows, columns)]
    source, target = (side / size.clamp_min(1).to(cost) for side, size in zip((rows, columns), sizes, strict=True))
    r, c = rows.to(cost), columns.to(cost)
    going = torch.ones(1 if together else len(cost), dtype=torch.bool, device=cost.device)[:, None]
    share = (rows / (sizes[0].sum() if together else sizes[0]).clamp_min(1)).to(cost)
    for step in range(1, ITERATIONS + 1):
        new_r = _ratio(source, torch.einsum("bnm,bm->bn", kernel, c), rows)
        new_c = _ratio(target, torch.einsum("bnm,bn->bm", kernel, torch.where(going, new_r, r)), columns)
        change = ((new_r - r).abs() * share).sum(1, keepdim=True)
        r, c = torch.where(going, new_r, r), torch.where(going, new_c, c)
        going = going & ~((change.sum(0, keepdim=True) if together else change) < TOLERANCE)
        if (step % CHECK_EVERY == 0 or not cost.is_cuda) and not bool(going.any()):
            break
    return r[:, :, None] * kernel * c[:, None]


def _ratio(mass: Tensor, total: Tensor, exists: Tensor) -> Tensor:
    """Return mass over total where both exist, else zero."""
    return torch.where(exists & (total > 0), mass / torch.where(total > 0, total, 1), 0)
