"""The exact numbers of one compression, as pages, figures and files show them."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.explain.spending import HALF, SPAN, shortest_run
from aviot.methods.aviot import Compression
from aviot.methods.aviot.allocation import standardise
from aviot.methods.aviot.segments import Segments
from aviot.methods.base import Compressed

FUSED = "fused"  # name of the single map without paths: a baseline, or a video too short to compress
CHUNK = 64  # positions that are processed at a time
SHARPNESS = 3.0  # factor of the standardised relevance in the softmax: the paper's alpha_q over tau
COPY = 0.9  # share of one frame from which on an output counts as a copy of it
NEARLY = 0.8  # fraction of the best score: the relevance of frames that show the same object differs by as much


@dataclass(frozen=True)
class Checks:
    """Deviations from identities that hold in exact arithmetic; only rounding of float32 remains."""

    row_sums: float  # largest distance of a coefficient row's sum from one
    frame_means: float  # largest distance of the frames' distributions from the spatial mean of the coefficients
    paths: float  # largest distance of the sum of the paths' mass from the fused coefficients
    rebuilt: float  # distance of coefficients times features from the compressed features, over their norm


@dataclass(frozen=True)
class View:
    """The provenance of every output of one compression, path by path."""

    question: int | None  # index of the conditioning question; None: unconditioned
    path: tuple[int, ...]  # temporal cardinalities
    budgets: tuple[tuple[int, ...], ...]  # supports per segment, stage by stage
    names: tuple[str, ...]  # of the paths, from coarse to fine
    coefficients: Float[Tensor, "K S T"]  # of the fused outputs
    mass: Float[Tensor, "L K S T"]  # contribution of each path, from every frame's patch to every output
    checks: Checks
    relevance: Float[Tensor, "Q T"]  # of the frames to every question
    grid: tuple[int, int]  # rows and columns of the positions
    tokens: Float[Tensor, "K"]  # number of the method's tokens in every output

    @property
    def segments(self) -> list[list[int]]:
        """Number of sources per segment, stage by stage."""
        return [
            Segments(sources, len(budgets)).sizes(torch.device("cpu")).tolist()
            for sources, budgets in zip(self.path, self.budgets, strict=False)
        ]

    @cached_property
    def frame_mass(self) -> Float[Tensor, "L K T"]:
        """Contribution of each path to every output's distribution over frames."""
        return self.mass.mean(2)

    @cached_property
    def frames(self) -> Float[Tensor, "K T"]:
        """Every output's distribution over frames, the paper's omega."""
        return self.frame_mass.sum(0)

    @property
    def shares(self) -> list[float]:
        """Each path's share of all outputs' mass."""
        return self.frame_mass.sum(-1).mean(-1).tolist()

    @cached_property
    def spent(self) -> Float[Tensor, "T"]:
        """Every frame's share of all tokens; the shares sum to one."""
        return (self.tokens[:, None] * self.frames).sum(0) / self.tokens.sum()

    @property
    def half(self) -> tuple[int, int]:
        """First and last frame of the shortest stretch that holds half of the tokens."""
        return shortest_run(self.spent.tolist(), HALF)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last frame of the shortest stretch that holds most of each output's mass."""
        return [shortest_run(row, SPAN) for row in self.frames.tolist()]

    def scores(self, question: int) -> Float[Tensor, "K"]:
        """Return how much every output matters for a question: its relevance times its mass, relative to the best."""
        return scored(self.frames, self.relevance[question], self.tokens)[1]

    def starting_pair(self, question: int) -> tuple[int, int]:
        """Return the output and its frame that are shown first for a question."""
        return starting_pair(self.frames, self.relevance[question], self.tokens)


def scored(
    frames: Float[Tensor, "K T"], relevance: Float[Tensor, "T"], tokens: Float[Tensor, "K"] | None = None
) -> tuple[Float[Tensor, "K T"], Float[Tensor, "K"]]:
    """Return the outputs' shares of frames times the frames' weights, and each output's score, at most one.

    Frames are weighted by the softmax of their standardised relevance, as segments are for their supports
    (eq:supp_allocation_probability), so that the scale of a model's relevance does not matter. An output's score is its
    expected weight times its mass, the number of its tokens (default: all have equally many).
    """
    weights = torch.softmax(SHARPNESS * standardise(relevance.to(frames)[None])[0], 0)
    held = frames * weights
    score = held.sum(1) if tokens is None else held.sum(1) * tokens
    return held, score / score.max()


def starting_pair(
    frames: Float[Tensor, "K T"], relevance: Float[Tensor, "T"], tokens: Float[Tensor, "K"] | None = None
) -> tuple[int, int]:
    """Return the output that matters most for a question (`scored`), and the frame it has most relevance from.

    All positions of a copied frame have the same weight, so the best mixture that scores nearly as high is preferred to
    a copy; among equal scores, the output with the largest share of one frame is.
    """
    held, score = scored(frames, relevance, tokens)
    largest = frames.amax(1)
    mixtures = torch.nonzero((score >= NEARLY) & (largest < COPY)).flatten().tolist()
    output = max(mixtures or range(len(frames)), key=lambda k: (round(float(score[k]), 3), float(largest[k])))
    return output, int(held[output].argmax())


def view_of(
    made: Compressed,
    question: int | None,
    sources: Float[Tensor, "T S D"],
    relevance: Float[Tensor, "Q T"],
    grid: tuple[int, int] | None = None,
) -> View:
    """Return the provenance of tokens, with checks of its numbers; large intermediates are freed early.

    `grid` is that of the sources, which may be finer than that of the tokens (default: the same).
    """
    grid = grid or made.grid
    with torch.no_grad():
        if made.compression is None:
            return _token_view(made, question, sources, relevance, grid)
        return _frame_view(made.compression, grid, question, sources, relevance)


def _frame_view(
    compression: Compression,
    grid: tuple[int, int],
    question: int | None,
    x: Float[Tensor, "T S D"],
    relevance: Float[Tensor, "Q T"],
) -> View:
    """Return the view of mixtures of whole frames, path by path."""
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
    return View(
        question=question,
        path=compression.path,
        budgets=compression.budgets,
        names=names,
        coefficients=coefficients,
        mass=mass,
        checks=checks,
        relevance=relevance,
        grid=grid,
        tokens=coefficients.new_full(coefficients.shape[:1], coefficients.shape[1]),
    )


def _token_view(
    made: Compressed,
    question: int | None,
    sources: Float[Tensor, "T S D"],
    relevance: Float[Tensor, "Q T"],
    grid: tuple[int, int],
) -> View:
    """Return the view of mixtures of single tokens; tokens of one moment are shown as one output.

    An output's map is the mean of its tokens' mixtures, scaled to sum to one, times the number of positions, so that
    the mean over positions is its distribution over frames, as for whole frames.
    """
    mixture = made.mixture
    moments, output = made.moments
    indices, weights = mixture.indices.cpu(), mixture.shares().float().cpu()
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
    return View(
        question=question,
        path=path,
        budgets=(),
        names=(FUSED,),
        coefficients=coefficients,
        mass=coefficients[None],
        checks=checks,
        relevance=relevance,
        grid=grid,
        tokens=counts.float(),
    )


def rebuilt_error(
    coefficients: Float[Tensor, "K S T"], x: Float[Tensor, "T S D"], features: Float[Tensor, "K S D"]
) -> float:
    """Return the distance of coefficients times features from the compressed features, over their norm."""
    off = norm = 0.0
    for here in _chunks(coefficients.shape[1]):
        rebuilt = torch.einsum("kst,tsd->ksd", coefficients[:, here], x[:, here].float())
        off += float((rebuilt - features[:, here].float()).double().square().sum())
        norm += float(features[:, here].double().square().sum())
    return (off / norm) ** 0.5 if norm else 0.0


def _chunks(positions: int) -> list[slice]:
    """Return slices of a few positions, which bound the memory of intermediates."""
    return [slice(first, first + CHUNK) for first in range(0, positions, CHUNK)]
