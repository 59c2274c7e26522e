"""AOT's first stage: attended tokens of each frame take up the others, before the frame is pooled."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aviot.methods.base import grid_positions
from aviot.methods.peers.aot_transport import transport
from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.density_peaks import ranks

WINDOWS = 3  # along each side of the grid; local anchors are spread evenly over them
DISTANCE_WEIGHT = 0.5  # of the distance on the grid, beside one minus the cosine
TRANSPORT_SHARE = 0.9  # of an anchor's mixture by transport; the rest is the mean with its nearest tokens
LEAST_MASS = 1e-9
SMALL = 1e-2  # weights below it are summed first


def rank_in_window(attention: Float[Tensor, "T P"], grid: tuple[int, int]) -> Int[Tensor, "T P"]:
    """Return each token's place among its window's tokens, the most attended first; 3 x 3 windows cover the grid."""
    rows, columns = grid
    row, column = grid_positions(grid, torch.arange(rows * columns, device=attention.device))
    window = (row * WINDOWS // rows) * WINDOWS + column * WINDOWS // columns
    order = attention.argsort(dim=1, descending=True, stable=True)
    grouped = order.gather(1, window[order].argsort(dim=1, stable=True))
    sizes = torch.bincount(window, minlength=WINDOWS**2)
    first = (sizes.cumsum(0) - sizes)[window[grouped]]
    return torch.empty_like(order).scatter_(1, grouped, torch.arange(rows * columns, device=order.device) - first)


def anchor_mask(
    local: Int[Tensor, "T P"], deep: Float[Tensor, "T P"], count: int, global_share: float
) -> Bool[Tensor, "T P"]:
    """Return which tokens are anchors: equally many of each window, then the most attended others of the deep layer.

    `local` is the rank in the window. Of `count` anchors, int(count * (1 - global_share)) are local, rounded down to a
    multiple of nine. If every token is to be an anchor, all are.
    """
    if count >= local.shape[1]:
        return torch.ones_like(local, dtype=torch.bool)
    spread = int(count * (1 - global_share))
    mask = local < spread // WINDOWS**2
    return mask | ((ranks(deep.masked_fill(mask, -torch.inf)) < count - spread) & ~mask)


def anchor_weights(
    x: Float[Tensor, "T P D"], mask: Bool[Tensor, "T P"], grid: tuple[int, int]
) -> tuple[Int[Tensor, "T a"], Float[Tensor, "T a P"]]:
    """Return each frame's anchors, and the weights of the frame's tokens in what each anchor becomes.

    All frames have equally many anchors. The plan transports the others onto the anchors, and is not normalised, so
    that an anchor takes up little by it; all iterations stop when the mean change over all frames is small.
    """
    frames, patches = mask.shape
    order = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    count = int(mask[0].sum())
    anchors, others = order[:, :count], order[:, count:]
    similarity = torch.cat([_similarity(*part) for part in _parts(x, anchors, others)])
    row, column = grid_positions(grid, torch.arange(patches, device=x.device))
    place = torch.stack((column / max(grid[1] - 1, 1), row / max(grid[0] - 1, 1)), 1).to(similarity)
    apart = (place[others][:, :, None] - place[anchors][:, None]).square().sum(-1).sqrt()
    cost = (1 - similarity) + DISTANCE_WEIGHT * apart
    plan = transport(cost, together=True).mT
    nearest = similarity.argmax(2)[:, None] == torch.arange(count, device=x.device)[:, None]
    taken, joined = plan.sum(2, keepdim=True).clamp_min(LEAST_MASS), nearest.sum(2, keepdim=True)
    by_plan, by_mean = TRANSPORT_SHARE / (1 + taken), (1 - TRANSPORT_SHARE) / (1 + joined)
    weights = plan.new_zeros(frames, count, patches)
    weights.scatter_(2, others[:, None].expand(-1, count, -1), by_plan * plan + by_mean * nearest)
    return anchors, weights.scatter_(2, anchors[..., None], by_plan + by_mean)


def _parts(x: Tensor, *others: Tensor) -> "zip[tuple[Tensor, ...]]":
    """Split frames into parts that fit in memory in float32."""
    step = chunk_size(x.shape[1] * x.shape[2])
    return zip(*(each.split(step) for each in (x, *others)), strict=True)


def _similarity(x: Tensor, anchors: Tensor, others: Tensor) -> Float[Tensor, "t z a"]:
    """Return the cosine of the other tokens and the anchors, in float32 or better."""
    unit = normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)
    every = torch.arange(len(unit), device=x.device)[:, None]
    return unit[every, others] @ unit[every, anchors].mT


def pooled_weights(
    pooling: Float[Tensor, "S P"],
    cells: Int[Tensor, "T k"],
    anchors: Int[Tensor, "T a"],
    weights: Float[Tensor, "T a P"],
) -> Float[Tensor, "T k P"]:
    """Return the weights of a frame's tokens in pooled cells, after anchors have become their mixtures."""
    own = pooling.to(weights)[cells]
    at = anchors[:, None].expand(-1, cells.shape[1], -1)
    return own.scatter(2, at, 0.0) + own.gather(2, at) @ weights


def mixed(weights: Float[Tensor, "T k P"], x: Float[Tensor, "T P D"]) -> Float[Tensor, "T k D"]:
    """Return mixtures of each frame's tokens.

    Hundreds of small weights are summed apart from the few large ones, beside which each would be rounded off.
    """
    done = []
    for tokens, own in _parts(x, weights):
        tokens, small = tokens.to(own), own < SMALL
        done.append(own.masked_fill(~small, 0.0) @ tokens + own.masked_fill(small, 0.0) @ tokens)
    return torch.cat(done)
