"""Maps over the patch grid, made small enough for a page: the pairs of output and frame that matter most.

Of a pair the page holds, for every path, the map in 256 steps of its own largest value and the exact set of the top
20 % of positions; the map's sum is not in it, since the page knows every path's exact mass for every pair. Maps are
smooth and deflate well; what is kept is what fits.
"""

import base64
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.analysis import agreement, top_cells

PAIRS_A_CHUNK = 64  # deflated together
DRAWN_BYTES = 24_000_000  # of maps in a reader's memory, a compression
LEAST_SHARE = 1e-6  # of an output: what less than that says cannot be seen
OF_EACH_OUTPUT, OF_EACH_FRAME = 4, 2  # strongest partners that are kept before anything else
STEPS = 255
FIGURES = ("mass_in_top", "centroid_mean", "centroid_largest", "divergence")  # overlaps follow from the sets
FIGURE_STEPS = 65535


@dataclass(frozen=True)
class Fields:
    """Maps of the pairs that were kept, packed."""

    pairs: str  # uint16 [P,2]: output and frame; like all that follows, base64 of deflated little-endian bytes
    figures: str  # uint16 [P,4]: `FIGURES` in 1/65535
    chunks: list[str]  # uint8: of each pair [L,S] maps, then [1+L,ceil(S/8)] bits: fused, paths
    kept_mass: float  # share of all outputs' mass that the kept pairs hold


def pack_fields(mass: Float[Tensor, "L K S T"], grid: tuple[int, int], most_bytes: int) -> Fields:
    """The pairs that matter most, as many as fit into `most_bytes` of deflated maps; at least one chunk."""
    by_pair = mass.mean(2).sum(0)  # [K,T], every output's distribution over frames
    order = _by_importance(by_pair)[: DRAWN_BYTES // (mass.shape[0] * mass.shape[2])]
    chunks: list[bytes] = []
    figures: list[np.ndarray] = []
    kept, size = 0, 0
    for some in order.split(PAIRS_A_CHUNK):
        maps = mass[:, some[:, 0], :, some[:, 1]]  # [p,L,S]
        chunk = zlib.compress(_packed(maps), 6)
        if chunks and size + len(chunk) > most_bytes:
            break
        chunks.append(chunk)
        figures.append(_figures(maps, grid))
        kept, size = kept + len(some), size + len(chunk)
    pairs = order[:kept]
    held = by_pair[pairs[:, 0], pairs[:, 1]].sum() / by_pair.sum()
    return Fields(
        pairs=text_of(pairs.numpy().astype("<u2")),
        figures=text_of(np.concatenate(figures).astype("<u2")),
        chunks=[base64.b64encode(chunk).decode("ascii") for chunk in chunks],
        kept_mass=float(held),
    )


def text_of(values: np.ndarray) -> str:
    """Numbers as base64 of their bytes, deflated."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes())).decode("ascii")


def _by_importance(by_pair: Float[Tensor, "K T"]) -> Int[Tensor, "P 2"]:
    """Pairs, the most important first: every output's and every frame's strongest partners, then the rest by mass."""
    rank_of_frame = by_pair.argsort(dim=1, descending=True, stable=True).argsort(1)
    rank_of_output = by_pair.argsort(dim=0, descending=True, stable=True).argsort(0)
    first = (rank_of_frame < OF_EACH_OUTPUT) | (rank_of_output < OF_EACH_FRAME)
    score = (by_pair + 2 * first).masked_fill(by_pair < LEAST_SHARE, -1).flatten()
    order = score.argsort(descending=True, stable=True)[: int((score >= 0).sum())]
    return torch.stack((order // by_pair.shape[1], order % by_pair.shape[1]), 1)


def _packed(maps: Float[Tensor, "p L S"]) -> bytes:
    largest = maps.amax(-1, keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
    steps = (maps / largest * STEPS).round().to(torch.uint8).numpy()
    sets = top_cells(torch.cat((maps.sum(1, keepdim=True), maps), 1)).numpy()
    bits = np.packbits(sets, axis=-1)
    return np.concatenate((steps.reshape(len(steps), -1), bits.reshape(len(bits), -1)), 1).tobytes()


def _figures(maps: Float[Tensor, "p L S"], grid: tuple[int, int]) -> np.ndarray:
    found = agreement(maps.double(), grid)
    values = torch.zeros(len(maps), len(FIGURES))
    known = FIGURES if maps.shape[1] > 1 else FIGURES[:1]  # a path alone has nothing to agree with
    for column, name in enumerate(known):
        values[:, column] = getattr(found, name).clamp(0, 1)
    return (values * FIGURE_STEPS).round().numpy()
