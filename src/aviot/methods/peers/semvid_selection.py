"""SemVID's second stage: a frame's tokens of context, objects of the question, and motion."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.peers.chunks import chunk_size
from aviot.methods.peers.semvid_allocation import LEAST_NORM, AnchorParameters, SemVidParameters, unit
from aviot.methods.peers.shares import integer_shares

UNUSED, CONTEXT, OBJECT, MOTION = -1, 0, 1, 2
WITHOUT_RELEVANCE = 1e-6  # the largest weight of relevance in motion that counts as none


@dataclass(frozen=True, eq=False)
class SomeFrames:
    """Some of a video's frames: unit tokens, their lengths (saliency), motion, and relevance to each query vector.

    `frames` are the frames' means of unit length. `keep` has the number of tokens to keep, on the CPU.
    """

    tokens: Float[Tensor, "F P D"]
    saliency: Float[Tensor, "F P"]
    motion: Float[Tensor, "F P"]
    relevance: Float[Tensor, "F P L"]
    frames: Float[Tensor, "F D"]
    keep: Int[Tensor, "F"]


def select(
    features: Float[Tensor, "T P D"],
    query: Float[Tensor, "*L D"],
    keep: Int[Tensor, "T"],
    parameters: SemVidParameters,
    grid: tuple[int, int],
) -> Int[Tensor, "T P"]:
    """Return each token's kind: context (0), object (1), motion (2), or not kept (-1)."""
    step = chunk_size(features[0].numel())
    rows, kinds = query if query.ndim == 2 else query[None], []
    for start in range(0, len(features), step):
        own = features[start : start + step].float()
        tokens = unit(own)
        around = features[max(0, start - 1) : start + step + 1]
        moved = patch_motion(around)[start - max(0, start - 1) :][: len(own)]
        some = SomeFrames(
            tokens, own.norm(dim=-1), moved, tokens @ rows.T, unit(own.mean(1)), keep[start : start + step]
        )
        kind = _context(some, parameters, grid)
        kind, wanted = _objects(kind, some, parameters, grid)
        kinds.append(_motion(kind, some, wanted, parameters.motion_relevance if query.ndim == 2 else 0.0))
    return torch.cat(kinds)


def patch_motion(features: Float[Tensor, "T P D"]) -> Float[Tensor, "T P"]:
    """Return how far each token is from those of the frames before and after, their mean; zero for one frame."""
    if len(features) == 1:
        return torch.zeros(features.shape[:2], device=features.device)
    own = features.float()
    moved = (own[1:] - own[:-1]).norm(dim=-1)
    return torch.cat((moved[:1], (moved[1:] + moved[:-1]) / 2, moved[-1:]))


def take(
    kind: Int[Tensor, "F P"], score: Float[Tensor, "F P"], counts: Int[Tensor, "F"], value: int
) -> Int[Tensor, "F P"]:
    """Mark each frame's unused tokens with the largest scores, the first of equal ones."""
    free = kind == UNUSED
    order = score.masked_fill(~free, -torch.inf).argsort(dim=1, descending=True, stable=True)
    return kind.masked_fill(free & (order.argsort(dim=1) < counts[:, None]), value)


def _context(some: SomeFrames, parameters: SemVidParameters, grid: tuple[int, int]) -> Int[Tensor, "F P"]:
    """Take the token nearest the frame's mean, and the longest ones up to the frame's least."""
    near = torch.bmm(some.tokens, some.frames[:, :, None])[:, :, 0].argmax(1, keepdim=True)
    kind = torch.full_like(some.saliency, UNUSED, dtype=torch.long).scatter(1, near, CONTEXT)
    more = _context_count(some, parameters) - 1
    if more > 0:
        if parameters.anchors is not None:
            points = grid_points(grid, min(parameters.anchors.uniform_context, more)).to(kind.device)
            kind = kind.index_fill(1, points, CONTEXT)
        kind = take(kind, some.saliency, more + 1 - (kind == CONTEXT).sum(1), CONTEXT)
    return kind


def _context_count(some: SomeFrames, parameters: SemVidParameters) -> int:
    return 1 if parameters.uniform else parameters.base(some.saliency.shape[1])


def grid_points(grid: tuple[int, int], count: int) -> Int[Tensor, "n"]:
    """Return up to `count` positions of a frame that lie on a regular grid."""
    if count < 1:
        return torch.empty(0, dtype=torch.long)
    down = max(1, math.isqrt(count))
    across = min(grid[1], -(-count // down))
    rows, columns = (
        torch.linspace(0, size - 1, steps).round().long()
        for size, steps in zip(grid, (min(grid[0], down), across), strict=True)
    )
    return (rows[:, None] * grid[1] + columns).flatten().unique()[:count]


def _objects(
    kind: Int[Tensor, "F P"], some: SomeFrames, parameters: SemVidParameters, grid: tuple[int, int]
) -> tuple[Int[Tensor, "F P"], Int[Tensor, "F"]]:
    """Take tokens for each query vector in turn, the strongest first; return what is left to take as motion, too.

    Each vector gets a number in proportion to its best relevance, and takes the most relevant token first, then those
    that are relevant and unlike the ones that it took before.
    """
    left = some.keep - _context_count(some, parameters)
    objects = (left.double() * parameters.object_share).round().long()
    steps, wanted = int(objects.max()), objects.to(kind.device)
    if parameters.anchors is not None and parameters.anchors.corners:
        before = (kind == UNUSED).sum(1)
        kind = _corner_objects(kind, some.relevance.amax(2), wanted, parameters.anchors, grid)
        wanted = wanted - (before - (kind == UNUSED).sum(1))
    strength = some.relevance.amax(1).clamp(min=0)
    order = strength.argsort(dim=1, descending=True, stable=True)
    counts = integer_shares(strength, wanted).gather(1, order)
    ends = counts.cumsum(1)
    likeness = torch.zeros_like(some.saliency)
    for step in range(steps):
        place = (ends <= step).sum(1, keepdim=True).clamp(max=order.shape[1] - 1)
        vector = order.gather(1, place)[:, :, None].expand(-1, kind.shape[1], 1)
        relevance = some.relevance.gather(2, vector)[:, :, 0]
        first = (ends - counts).gather(1, place) == step
        varied = parameters.variety_weight * relevance - (1 - parameters.variety_weight) * likeness
        score = torch.where(first, relevance, varied).masked_fill(kind != UNUSED, -torch.inf)
        best = score.argmax(1, keepdim=True)
        kind = kind.scatter(1, best, kind.gather(1, best).masked_fill((step < wanted)[:, None], OBJECT))
        chosen = some.tokens.gather(1, best[:, :, None].expand(-1, -1, some.tokens.shape[2]))
        like = torch.bmm(some.tokens, chosen.mT)[:, :, 0]
        likeness = torch.where(first, like, likeness.maximum(like))
    return kind, (left - objects).to(kind.device)


def _corner_objects(
    kind: Int[Tensor, "F P"],
    relevance: Float[Tensor, "F P"],
    wanted: Int[Tensor, "F"],
    anchors: AnchorParameters,
    grid: tuple[int, int],
) -> Int[Tensor, "F P"]:
    """Take the tokens nearest the corners of the box around the most relevant ones, at most as many as wanted."""
    order = relevance.argsort(dim=1, descending=True, stable=True)[:, : anchors.candidates]
    row, column = torch.div(order, grid[1], rounding_mode="floor"), order % grid[1]
    (top, bottom), (left, right) = ((at.amin(1, keepdim=True), at.amax(1, keepdim=True)) for at in (row, column))
    corners = [(top, left), (bottom, right)]
    if anchors.corners >= 4:
        corners += [(top, right), (bottom, left)]
    nearest = [((row - y).square() + (column - x).square()).argmin(1, keepdim=True) for y, x in corners]
    at_corner = torch.zeros_like(kind, dtype=torch.bool).scatter(1, order.gather(1, torch.cat(nearest, 1)), True)
    at_corner &= (relevance.amax(1, keepdim=True) >= anchors.least_relevance) & (kind == UNUSED)
    counts = at_corner.sum(1).minimum(wanted)
    return take(kind, relevance.masked_fill(~at_corner, -torch.inf), counts, OBJECT)


def _motion(kind: Int[Tensor, "F P"], some: SomeFrames, counts: Int[Tensor, "F"], weight: float) -> Int[Tensor, "F P"]:
    """Take the tokens that move most, and are relevant; what is left always suffices."""
    score, free = some.motion, kind == UNUSED
    if weight > WITHOUT_RELEVANCE:
        relevance = some.relevance.amax(2).clamp(min=0)
        most = [part.masked_fill(~free, 0.0).amax(1, keepdim=True).clamp(min=LEAST_NORM) for part in (score, relevance)]
        score = (1 - weight) * score / most[0] + weight * relevance / most[1]
    return take(kind, score, counts, MOTION)
