"""One compression as a page, a figure or a file shows it: exact numbers, read once and then let go of."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.compressor import Compression
from aviot.compressor.segments import Segments

FUSED = "fused"  # the one map of what has no paths: a baseline, or a video that was short enough


@dataclass(frozen=True)
class Checks:
    """How far the numbers are from what they must be; rounding of float32 is all that is left."""

    row_sums: float  # largest distance of a coefficient row's sum from one
    frame_means: float  # of the frames' distributions from the spatial mean of the coefficients
    paths: float  # of the paths' mass, added up, from the fused coefficients
    rebuilt: float  # of coefficients times features from the compressed features, over their norm


@dataclass(frozen=True)
class View:
    """Where every output of one compression came from, path by path."""

    heard: int | None  # number of the question that the compressor heard
    path: tuple[int, ...]  # temporal cardinalities
    budgets: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]  # of the paths, coarse to fine
    coefficients: Float[Tensor, "K S T"]  # exact, of the fused outputs
    mass: Float[Tensor, "L K S T"]  # what each path brought of every frame's patch to every output
    checks: Checks

    @property
    def segments(self) -> list[list[int]]:
        """Sources in each segment, stage by stage."""
        return [
            Segments(sources, len(budgets)).sizes(torch.device("cpu")).tolist()
            for sources, budgets in zip(self.path, self.budgets, strict=False)
        ]

    @cached_property
    def frame_mass(self) -> Float[Tensor, "L K T"]:
        """Each path's part of every output's distribution over frames."""
        return self.mass.mean(2)

    @cached_property
    def frames(self) -> Float[Tensor, "K T"]:
        """omega, every output's distribution over frames."""
        return self.frame_mass.sum(0)

    @property
    def shares(self) -> list[float]:
        """Each path's share of all outputs' mass."""
        return self.frame_mass.sum(-1).mean(-1).tolist()

    @property
    def strongest_pair(self) -> tuple[int, int]:
        """An output and its strongest frame, where no frame came through as it was: the most there is to see."""
        largest, frames = self.frames.max(-1)
        mixed = torch.where(largest < 0.9, largest, largest - 1)  # of copies, the least pure
        output = int(mixed.argmax())
        return output, int(frames[output])


def view_of(compression: Compression, heard: int | None, x: Float[Tensor, "T S D"]) -> View:
    """Read a compression of the features `x`, and check its numbers against each other.

    What is large is let go before the next is made.
    """
    with torch.no_grad():
        provenance = compression.provenance()
        coefficients = provenance.coefficients.float().cpu()
        rebuilt = rebuilt_error(coefficients, x.cpu(), compression.features.cpu())
        del x
        names = provenance.branch_names or (FUSED,)
        mass = coefficients.new_empty(len(names), *coefficients.shape)
        chunks = _chunks(coefficients.shape[1])
        for place, name in enumerate(provenance.branch_names):
            for some in chunks:
                mass[place, :, some] = provenance.branch_mass(name, some)
        if not provenance.branch_names:
            mass[0] = coefficients
        checks = Checks(
            row_sums=float((coefficients.sum(-1) - 1).abs().max()),
            frame_means=float((provenance.frames().cpu() - coefficients.mean(1)).abs().max()),
            paths=max(float((mass[:, :, some].sum(0) - coefficients[:, some]).abs().max()) for some in chunks),
            rebuilt=rebuilt,
        )
    return View(heard, compression.path, compression.budgets, names, coefficients, mass, checks)


def rebuilt_error(
    coefficients: Float[Tensor, "K S T"], x: Float[Tensor, "T S D"], features: Float[Tensor, "K S D"]
) -> float:
    """Distance of coefficients times features from the compressed features, over their norm."""
    off = norm = 0.0
    for here in _chunks(coefficients.shape[1]):
        rebuilt = torch.einsum("kst,tsd->ksd", coefficients[:, here], x[:, here].float())
        off += float((rebuilt - features[:, here].float()).double().square().sum())
        norm += float(features[:, here].double().square().sum())
    return (off / norm) ** 0.5 if norm else 0.0


def _chunks(positions: int) -> list[slice]:
    """A few positions at a time, so that what is worked out from them stays small."""
    return [slice(first, first + 64) for first in range(0, positions, 64)]
