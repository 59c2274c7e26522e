"""The interface of methods at the three points where one can act, and the result that they all return."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.budget import Budget
from aviot.methods.aviot.numerics import summary_of
from aviot.methods.aviot.result import Compression
from aviot.methods.features import TokenMixture, VideoFeatures

if TYPE_CHECKING:
    from aviot.methods.inside import InsideMethod

TIME_DIGITS = 3  # decimals of seconds; times that agree in them are the same moment
CELL_DIGITS = 4  # decimals of rows and columns that decide the order of tokens

Point = Literal["features", "tokens", "decoder"]
"""The point where a method acts: on encoder features, on projected tokens, or inside a decoder layer."""


@dataclass(frozen=True, repr=False, eq=False)
class Compressed:
    """A method's result for one video: tokens, their positions, and the mixture of source tokens behind each.

    At the point `features` the tokens are features of whole frames, K x S of them, and `compression` is the record of
    their computation. Positions and mixture are computed on first use.
    """

    tokens: Float[Tensor, "n D"]
    grid: tuple[int, int]
    _positions: Callable[[], Float[Tensor, "n 3"]]
    _mixture: Callable[[], TokenMixture]
    compression: Compression | None = None
    frame_times: tuple[float, ...] = ()  # seconds of the source frames

    def __repr__(self) -> str:
        return f"Compressed(tokens={summary_of(self.tokens)})"

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def positions(self) -> Float[Tensor, "n 3"]:
        """Seconds, row and column of each token; a mixture of frames has the mean of their times."""
        return self._positions()

    @cached_property
    def mixture(self) -> TokenMixture:
        """The exact mixture of source tokens behind each token."""
        if self.compression is not None:
            self.compression.check()
        return self._mixture()

    @cached_property
    def nearest_frame(self) -> Int[Tensor, "n"]:
        """The source frame whose time is nearest to each token's."""
        at = torch.tensor(self.frame_times, device=self.positions.device)
        return torch.bucketize(self.times.round(decimals=TIME_DIGITS), (at[1:] + at[:-1]) / 2)

    @cached_property
    def cells(self) -> Float[Tensor, "n 2"]:
        """Row and column of each token, to the decimals that do not depend on the order in which a device sums."""
        return self.positions[:, 1:].round(decimals=CELL_DIGITS)

    @cached_property
    def moments(self) -> tuple[Float[Tensor, "K"], Int[Tensor, "n"]]:
        """The times of frames that are nearest to some token, on the CPU, and which of them each token has."""
        frames, which = self.nearest_frame.cpu().unique(return_inverse=True)
        return torch.tensor(self.frame_times)[frames], which

    @property
    def frame_shares(self) -> Float[Tensor, "T"]:
        """Each source frame's share of all tokens, on the CPU; the shares sum to one."""
        whole = self.compression.provenance().frames() if self.compression is not None else self.mixture.frame_shares()
        return whole.float().mean(0).cpu()

    @property
    def times(self) -> Float[Tensor, "n"]:
        """Each token's time in seconds."""
        return self.positions[:, 0]

    def subset(self, index: Int[Tensor, "k"]) -> "Compressed":
        """Return the tokens at these indices, with their positions and mixtures."""

        def mixture() -> TokenMixture:
            return replace(self.mixture, indices=self.mixture.indices[index], weights=self.mixture.weights[index])

        own = self.tokens[index]
        return Compressed(own, self.grid, lambda: self.positions[index], mixture, frame_times=self.frame_times)

    def on_grid(self, grid: tuple[int, int]) -> "Compressed":
        """Return the same tokens with rows and columns of another grid over the same frames.

        Sources keep their numbers: the mixture is unchanged.
        """
        if grid == self.grid:
            return self

        def positions() -> Tensor:
            time, *cells = self.positions.unbind(1)
            moved = [
                ((cell + 0.5) * (new / old) - 0.5).clamp(0, new - 1)
                for cell, old, new in zip(cells, self.grid, grid, strict=True)
            ]
            return torch.stack((time, *moved), 1)

        return replace(self, grid=grid, _positions=positions, _mixture=lambda: self.mixture)

    @classmethod
    def kept(cls, video: VideoFeatures, index: Int[Tensor, "n"]) -> Self:
        """Return unchanged source tokens, selected by flat index (frame * patches + patch)."""
        if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
            raise ValueError(f"index must be a 1-D tensor of whole numbers, got {index.dtype} {tuple(index.shape)}")
        ones = torch.ones((len(index), 1), device=index.device)
        return cls.mixed(video, TokenMixture(index[:, None], ones, video.frames, video.patches), video.flat()[index])

    @classmethod
    def mixed(cls, video: VideoFeatures, mixture: TokenMixture, tokens: Tensor | None = None) -> Self:
        """Return mixtures of source tokens; `tokens` if they have been computed already, in the mixture's order."""
        if mixture.weights.device.type == "cpu":  # elsewhere on first use: reading the sums would stall the device
            mixture.check()
        made = mixture.rebuild(video.flat()).to(video.features.dtype) if tokens is None else tokens
        grid, times = video.grid, video.times  # closures must not hold the features in memory

        def checked() -> TokenMixture:
            mixture.check()
            return mixture

        return cls(made, grid, lambda: mean_positions(mixture, grid, times), checked, frame_times=times)

    @classmethod
    def of_frames(cls, compression: Compression, video: VideoFeatures) -> Self:
        """Return whole frames' features, [K,S,D], as tokens."""
        grid, times = video.grid, video.times  # closures must not hold the features in memory

        def positions() -> Tensor:
            return frame_positions(compression.provenance().frames(), grid, times)

        def mixture() -> TokenMixture:
            return frame_mixture(compression.provenance().coefficients)

        return cls(compression.features.flatten(0, 1), grid, positions, mixture, compression, times)


def frame_mixture(coefficients: Float[Tensor, "K S T"]) -> TokenMixture:
    """Return mixtures of whole frames, position by position, as mixtures of source tokens."""
    supports, patches, frames = coefficients.shape
    device = coefficients.device
    here = torch.arange(patches, device=device)[:, None] + patches * torch.arange(frames, device=device)
    indices = here.expand(supports, -1, -1).flatten(0, 1)
    return TokenMixture(indices, coefficients.flatten(0, 1), frames, patches)


def frame_positions(
    shares: Float[Tensor, "K T"], grid: tuple[int, int], times: tuple[float, ...]
) -> Float[Tensor, "K*S 3"]:
    """Return seconds, row and column of whole frames' tokens, from each frame's distribution over source frames."""
    mean_times = shares.float() @ torch.tensor(times, device=shares.device)
    row, column = grid_positions(grid, torch.arange(grid[0] * grid[1], device=shares.device))
    every = [part.float().expand(len(mean_times), -1) for part in (row, column)]
    return torch.stack((mean_times[:, None].expand_as(every[0]), *every), -1).flatten(0, 1)


def mean_positions(mixture: TokenMixture, grid: tuple[int, int], times: tuple[float, ...]) -> Float[Tensor, "n 3"]:
    """Return each mixture's mean time, row and column."""
    indices, shares = mixture.indices, mixture.shares().float()
    seconds = torch.tensor(times, device=indices.device)[indices // mixture.patches]
    row, column = grid_positions(grid, indices % mixture.patches)
    return torch.stack([(shares * part).sum(1) for part in (seconds, row, column)], 1)


def grid_positions(grid: tuple[int, int], patches: Int[Tensor, "..."]) -> tuple[Tensor, Tensor]:
    """Return row and column of grid positions."""
    return torch.div(patches, grid[1], rounding_mode="floor"), patches % grid[1]


class Method(ABC):
    """A function from a video's features to fewer tokens, under a budget, with or without a question.

    A method is stateless: the same call gives the same result. Class attributes describe it to the rest of the package.
    `needs` names extras that a backbone supplies in `VideoFeatures.extras`.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""  # shown in reports; the name if empty
    point: ClassVar[Point]
    trained: ClassVar[bool] = False  # True if it has trained parts, which `bind` takes from a model
    stand_in: ClassVar[str | None] = None  # the method that runs instead on a model without these trained parts
    uses_question: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    compresses: ClassVar[bool] = True  # False if all tokens stay unchanged
    uses_times: ClassVar[bool] = False  # True if it reads `VideoFeatures.times`; a CUDA graph would not notice others
    replayable: ClassVar[bool] = True  # False if a CUDA graph cannot repeat a call
    before_pooling: ClassVar[bool] = False  # True if it reads projected tokens before the backbone pools them

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """Values besides shapes and weights that a CUDA graph of a call depends on; a method adds its parameters."""
        return type(self), self.name

    @property
    def inside(self) -> "InsideMethod | None":
        """The part of the method that acts inside the decoder; by default none."""
        return None

    def bind(self, parts: Mapping[str, nn.Module]) -> "Method":
        """Return the method with a model's trained parts; by default the method itself, which has none."""
        return self

    def __call__(
        self,
        video: VideoFeatures,
        *,
        question: Float[Tensor, "d"] | None = None,
        budget: Budget | float,
    ) -> Compressed:
        """Compress one video. `question` is the mean input embedding of the question's tokens.

        A method that does not use the question does not get it.
        """
        if video.batched:
            raise ValueError(f"give one video, features [T,S,D], got a batch {tuple(video.features.shape)}")
        limit, asked = Budget.of(budget), question if self.uses_question else None
        missing = sorted(self.needs - video.extras.keys()) if asked is not None or not self.uses_question else []
        if missing:
            raise ValueError(
                f"method {self.name!r} needs {', '.join(missing)}, which this backbone does not supply; choose another"
            )
        made = self.compress(video, question=asked, budget=limit)
        if not isinstance(made, Compressed):
            raise TypeError(f"method {self.name!r} must return a Compressed, got {type(made).__name__}")
        if not len(made):
            raise ValueError(f"method {self.name!r} made no tokens; a method must keep at least one")
        if self.point == "tokens" and len(made) > (allowed := video.limit(limit)):
            raise ValueError(
                f"method {self.name!r} made {len(made):,} tokens of a budget of {allowed:,}; a method may return at "
                "most `video.limit(budget)`"
            )
        return made

    @abstractmethod
    def compress(self, video: VideoFeatures, *, question: Float[Tensor, "d"] | None, budget: Budget) -> Compressed:
        """Compress one video; `__call__` has checked the arguments."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class FrameMethod(Method):
    """A method that mixes whole frames of encoder features, position by position, into those of K frames.

    A batch of videos is mixed in one call.
    """

    point = "features"

    @abstractmethod
    def mix(
        self,
        video: VideoFeatures,
        *,
        question: Float[Tensor, "*B d"] | None,
        budget: Budget,
        step: int | None = None,
    ) -> Compression:
        """Mix one video or a batch; `step` is the training step of methods with a warm-up."""

    def compress(self, video: VideoFeatures, *, question: Float[Tensor, "d"] | None, budget: Budget) -> Compressed:
        """Mix one video."""
        return Compressed.of_frames(self.mix(video, question=question, budget=budget), video)


class TokenMethod(Method):
    """A method that keeps or merges individual projected tokens, those that the decoder would read."""

    point = "tokens"
