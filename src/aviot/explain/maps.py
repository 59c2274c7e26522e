"""Maps over the patch grid: their opacity when drawn, and their packing into a page.

The page holds maps of the most important pairs of an output and a frame, as many as fit. For each pair and path it has
the map in 256 steps of its own largest value and the exact set of the top 20 % of positions. It needs no sums: it has
the exact mass of every path for every pair. Maps are smooth and deflate well.
"""

import base64
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.aviot.analysis import TOP_SHARE, agreement, top_cells

BOLD = 2 * TOP_SHARE  # share of the mass in the outlined fifth from which on a map is drawn at full opacity
FAINTEST = 0.15  # opacity of an even map
EVEN = 1.3 * TOP_SHARE  # share below which a map counts as nearly uniform: it is described, not outlined

PAIRS_PER_CHUNK = 64  # deflated together
UNPACKED_BYTES = 24_000_000  # of one compression's maps in the browser's memory
LEAST_SHARE = 1e-6  # of an output; pairs below it could not be seen
PER_OUTPUT, PER_FRAME = 4, 2  # strongest partners that are packed before anything else
STEPS = 255
FIGURES = ("mass_in_top", "centroid_mean", "centroid_largest", "divergence")  # overlaps follow from the sets
FIGURE_STEPS = 65535


def opacity(share: float) -> float:
    """Return the opacity of a map whose outlined fifth of the positions holds `share` of its mass.

    The outlined fifth of an even map holds a fifth, and its outline is noise. Outlines and colours therefore fade as
    the share falls towards a fifth.
    """
    beyond = (share - TOP_SHARE) / (BOLD - TOP_SHARE)
    return FAINTEST + (1 - FAINTEST) * min(1.0, max(0.0, beyond))


@dataclass(frozen=True)
class PackedMaps:
    """Maps of the packed pairs; every text is base64 of deflated little-endian bytes."""

    pairs: str  # uint16 [P,2]: output and frame
    figures: str  # uint16 [P,4]: `FIGURES` in 1/65535
    chunks: list[str]  # uint8, per pair: [L,S] maps, then [1+L,ceil(S/8)] bits of the fused map and the paths
    kept_mass: float  # share of all outputs' mass that the packed pairs hold


def pack_maps(mass: Float[Tensor, "L K S T"], grid: tuple[int, int], most_bytes: int) -> PackedMaps:
    """Pack the most important pairs, as many as fit into `most_bytes` of deflated maps; at least one chunk."""
    by_pair = mass.mean(2).sum(0)  # [K,T], every output's distribution over frames
    order = _by_importance(by_pair)[: UNPACKED_BYTES // (mass.shape[0] * mass.shape[2])]
    chunks: list[bytes] = []
    figures: list[np.ndarray] = []
    count, size = 0, 0
    for some in order.split(PAIRS_PER_CHUNK):
        maps = mass[:, some[:, 0], :, some[:, 1]]  # [p,L,S]
        chunk = zlib.compress(_packed(maps), 6)
        if chunks and size + len(chunk) > most_bytes:
            break
        chunks.append(chunk)
        figures.append(_figures(maps, grid))
        count, size = count + len(some), size + len(chunk)
    pairs = order[:count]
    held = by_pair[pairs[:, 0], pairs[:, 1]].sum() / by_pair.sum()
    return PackedMaps(
        pairs=deflated(pairs.numpy().astype("<u2")),
        figures=deflated(np.concatenate(figures).astype("<u2")),
        chunks=[base64.b64encode(chunk).decode("ascii") for chunk in chunks],
        kept_mass=float(held),
    )


def deflated(values: np.ndarray) -> str:
    """Return an array's bytes, deflated, as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes())).decode("ascii")


def _by_importance(by_pair: Float[Tensor, "K T"]) -> Int[Tensor, "P 2"]:
    """Return pairs by importance: every output's and every frame's strongest partners, then the rest by mass."""
    rank_of_frame = by_pair.argsort(dim=1, descending=True, stable=True).argsort(1)
    rank_of_output = by_pair.argsort(dim=0, descending=True, stable=True).argsort(0)
    first = (rank_of_frame < PER_OUTPUT) | (rank_of_output < PER_FRAME)
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
    known = FIGURES if maps.shape[1] > 1 else FIGURES[:1]  # a single path has nothing to agree with
    for column, name in enumerate(known):
        values[:, column] = getattr(found, name).clamp(0, 1)
    return (values * FIGURE_STEPS).round().numpy()
