"""One compression as a page, a figure or a file shows it: exact numbers, read once and then let go of."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.aviot import Compression
from aviot.methods.aviot.allocation import standardise
from aviot.methods.aviot.segments import Segments
from aviot.methods.base import Compressed

FUSED = "fused"  # the one map of what has no paths: a baseline, or a video that was short enough
SHARPNESS = 3.0  # of the standardised relevance before frames compete: the paper's alpha_q over tau
COPY = 0.9  # of an output from one frame: the frame came through as it was
NEARLY = 0.8  # of the best score: frames that show the same object differ by as much in relevance


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
    relevance: Float[Tensor, "Q T"]  # of the frames to every question that was asked
    grid: tuple[int, int]  # rows and columns of the positions

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

    def starting_pair(self, question: int) -> tuple[int, int]:
        """Return the output and the frame of it that are shown first for a question."""
        return starting_pair(self.frames, self.relevance[question])


def starting_pair(frames: Float[Tensor, "K T"], relevance: Float[Tensor, "T"]) -> tuple[int, int]:
    """Return the output that holds most of what a question is about, and the frame that most of it is from.

    The frames share the question as segments share supports: by the softmax of their standardised relevance
    (eq:supp_allocation_probability), so that the scale of a model's relevance does not matter. An output's score is the
    share that it is expected to hold. All positions of a copied frame weigh the same, so a copy makes way for the best
    mixture that scores nearly as high; where scores are equal, the clearest output comes first.
    """
    of_question = torch.softmax(SHARPNESS * standardise(relevance.to(frames)[None])[0], 0)
    held = frames * of_question
    score, largest = held.sum(1) / held.sum(1).max(), frames.amax(1)
    mixtures = torch.nonzero((score >= NEARLY) & (largest < COPY)).flatten().tolist()
    output = max(mixtures or range(len(frames)), key=lambda k: (round(float(score[k]), 3), float(largest[k])))
    return output, int(held[output].argmax())


def view_of(
    made: Compressed, heard: int | None, sources: Float[Tensor, "T S D"], relevance: Float[Tensor, "Q T"]
) -> View:
    """Read how tokens were made from their sources, and check the numbers against each other.

    What is large is let go before the next is made.
    """
    with torch.no_grad():
        if made.compression is None:
            return _token_view(made, heard, sources, relevance)
        return _frame_view(made.compression, made.grid, heard, sources, relevance)


def _frame_view(
    compression: Compression,
    grid: tuple[int, int],
    heard: int | None,
    x: Float[Tensor, "T S D"],
    relevance: Float[Tensor, "Q T"],
) -> View:
    """Read mixtures of whole frames, path by path."""
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
    return View(heard, compression.path, compression.budgets, names, coefficients, mass, checks, relevance, grid)


def _token_view(
    made: Compressed, heard: int | None, sources: Float[Tensor, "T S D"], relevance: Float[Tensor, "Q T"]
) -> View:
    """Read mixtures of single tokens; tokens of one moment are shown as one output.

    An output's map is the mean of its tokens' mixtures times the number of positions, so that the mean over positions
    is its distribution over frames, as for whole frames.
    """
    mixture = made.mixture
    moments, output = made.moments
    indices, weights = mixture.indices.cpu(), mixture.weights.float().cpu()
    counts = output.bincount(minlength=len(moments))
    shape = (len(moments), mixture.patches, mixture.frames)
    place = (output[:, None] * mixture.patches + indices % mixture.patches) * mixture.frames
    place += indices // mixture.patches
    scaled = weights * (mixture.patches / counts[output])[:, None]
    coefficients = scaled.new_zeros(shape).view(-1).index_add_(0, place.flatten(), scaled.flatten()).view(shape)
    shares = mixture.frame_shares().float().cpu()
    frames = shares.new_zeros(shape[0], shape[2]).index_add_(0, output, shares) / counts[:, None]
    tokens = made.tokens.float()
    off = mixture.rebuild(sources.flatten(0, 1)).float() - tokens
    checks = Checks(
        row_sums=float((coefficients.mean(1).sum(-1) - 1).abs().max()),
        frame_means=float((coefficients.mean(1) - frames).abs().max()),
        paths=0.0,
        rebuilt=float(off.norm() / tokens.norm()) if tokens.norm() else 0.0,
    )
    path = (mixture.frames, len(moments)) if len(moments) < mixture.frames else (mixture.frames,)
    return View(heard, path, (), (FUSED,), coefficients, coefficients[None], checks, relevance, made.grid)


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
