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
    rows, columns = (
        rows & columns.any(1, keepdim=True),
        columns & rows.any(1, keepdim=True),
    )  # neither without the other
    kernel = (-cost / EPSILON).exp().masked_fill(~(rows[:, :, None] & columns[:, None]), 0.0)
    source, target = (_uniform(side, cost.dtype) for side in (rows, columns))
    # rows and columns that do not exist have no mass, over a sum of one
    source_pad, target_pad = ((~side[..., None]).to(cost.dtype) for side in (rows, columns))
    share = (rows / rows.sum().clamp_min(1)).to(cost.dtype)[:, None] if together else source.mT
    r, c = (side[..., None].to(cost.dtype) for side in (rows, columns))
    going = torch.ones(1 if together else len(cost), 1, 1, dtype=torch.bool, device=cost.device)
    for step in range(1, ITERATIONS + 1):
        new = torch.where(going, source / torch.baddbmm(source_pad, kernel, c), r)
        c = target / torch.baddbmm(target_pad, kernel.mT, new)  # of a problem that has stopped, the same as before
        change = share @ (new - r).abs()
        r, going = new, going & ((change.sum(0, keepdim=True) if together else change) >= TOLERANCE)
        if (step % CHECK_EVERY == 0 or not cost.is_cuda) and not bool(going.any()):
            break
    return r * kernel * c.mT


def _uniform(exists: Bool[Tensor, "B n"], dtype: torch.dtype) -> Float[Tensor, "B n 1"]:
    """Return equal masses that sum to one for each problem."""
    return (exists / exists.sum(1, keepdim=True).clamp_min(1)).to(dtype)[..., None]
