"""The input of methods, features on a grid, and the provenance of their tokens, sparse mixtures of these."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.budget import Budget


@dataclass(frozen=True)
class Structure:
    """The structure tokens that a layout adds to a method's tokens: after each frame that has some, and after the last.

    An uncompressed video and whole frames keep the model's own layout, which may have others.
    """

    per_frame: int = 0
    per_video: int = 0

    def room(self, limit: int, frames: int) -> int:
        """Return the most tokens that a limit allows beside the structure tokens, wherever the tokens are.

        Raises ValueError if not even one token has room.
        """
        left, scattered = limit - self.per_video, 1 + self.per_frame
        count = left - frames * self.per_frame if left >= frames * scattered else left // scattered
        if count < 1:
            least = scattered + self.per_video
            raise ValueError(
                f"a budget of {limit:,} leaves no room for one token and its separators; give at least {least:,} tokens"
            )
        return count


NO_STRUCTURE = Structure()


@dataclass(frozen=True)
class VideoFeatures:
    """One encoded video, or a batch of equally long ones, frame by frame on a grid of patches.

    `features` are encoder features or projected tokens, depending on the point at which a method acts. `times` are
    seconds, one per frame. `tokens_per_frame` is the number of decoder tokens of a whole frame, including separators;
    by default the size of the grid. `structure` has those of a compressed video. `extras` has tensors by name: those
    that a method named in `needs`, and `deepstack_0`, `deepstack_1`, ... [T,S,d] of families that have them.

    - `before_positions` [*B,T,S,D]: features before positions were added
    - `frame_means` [*B,T,d]: each frame's mean in the decoder's space
    - `attention` [T,S]: attention that each token receives in the last encoder layer in use: softmax weights, averaged
      over heads and over the queries of its frame (with a class token, if there is one), pooled as the tokens are
    - `attention_keys` [T,S,h]: that layer's keys before rotary embeddings, averaged over heads, pooled alike
    - `question_tokens` [L,d]: input embeddings of the question's own tokens, without its options
    - of methods with `before_pooling`, whose features [T,P,D] are projected tokens on the grid before pooling:
      `pooling` [rows,columns,P], the weight of each in every pooled cell, and `attention_shallow` and `attention_deep`
      [T,P], attention received, summed over queries and averaged over heads, in a layer at a fifth of the encoder's
      depth and in the last but one in use
    """

    features: Float[Tensor, "*B T S D"]
    grid: tuple[int, int]
    times: tuple[float, ...] = ()
    tokens_per_frame: int = 0
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    structure: Structure = NO_STRUCTURE

    def __post_init__(self) -> None:
        rows, columns = self.grid
        if self.features.ndim not in (3, 4) or self.features.shape[-2] != rows * columns:
            raise ValueError(
                f"features must be [T,{rows * columns},D] or [B,T,{rows * columns},D] for a grid of {rows}x{columns}, "
                f"got {tuple(self.features.shape)}"
            )
        if self.times and len(self.times) != self.frames:
            raise ValueError(f"give one time per frame, or no times; got {len(self.times)} for {self.frames} frames")
        if not self.times:
            object.__setattr__(self, "times", tuple(map(float, range(self.frames))))
        if not self.tokens_per_frame:
            object.__setattr__(self, "tokens_per_frame", rows * columns)

    @property
    def frames(self) -> int:
        """T, the number of frames."""
        return self.features.shape[-3]

    @property
    def patches(self) -> int:
        """S, the number of grid positions per frame."""
        return self.features.shape[-2]

    @property
    def batched(self) -> bool:
        """True if there is a leading axis of videos."""
        return self.features.ndim == 4

    @property
    def cells(self) -> int:
        """The number of decoder tokens of a whole frame without separators: fewer than `patches` before pooling."""
        pooling = self.extras.get("pooling")
        return self.patches if pooling is None else pooling.shape[-3] * pooling.shape[-2]

    def limit(self, budget: Budget) -> int:
        """Return the number of tokens that a method on single tokens may return under a budget.

        With the structure tokens that the layout adds, wherever those tokens are, they are within the budget. A budget
        of all tokens returns all; any other leaves at least one out.
        """
        whole, every = self.frames * self.tokens_per_frame, self.frames * self.cells
        allowed = budget.count(self.frames, self.tokens_per_frame)
        asked = allowed if budget.tokens is None else budget.tokens - self.structure.per_video
        if min(asked, allowed) >= whole:
            return every
        return min(self.structure.room(allowed, self.frames), max(1, every - 1))

    def flat(self) -> Float[Tensor, "T*S D"]:
        """Return the tokens of one video, frame by frame, each frame row by row."""
        return self.features.flatten(-3, -2)

    def only(self, index: int) -> "VideoFeatures":
        """Return one video of a batch."""
        extras = {name: values[index] for name, values in self.extras.items()}
        return replace(self, features=self.features[index], extras=extras)


@dataclass(frozen=True, repr=False)
class TokenMixture:
    """The sources of each output token: `weights[i, j]` is the weight of source token `indices[i, j]` in token i.

    Source tokens are numbered frame by frame, each frame row by row: `frame * patches + patch`. Each token's weights
    sum to one, except where a published method adds tokens up (VisionZip, FlashVID's trees); unused entries have weight
    zero.
    """

    indices: Int[Tensor, "n m"]
    weights: Float[Tensor, "n m"]
    frames: int
    patches: int

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.weights.shape:
            raise ValueError(
                "indices and weights must have one shape [tokens, sources each], got "
                f"{tuple(self.indices.shape)} and {tuple(self.weights.shape)}"
            )

    def __repr__(self) -> str:
        return (
            f"TokenMixture({len(self.indices)} tokens of {self.frames} x {self.patches}, {self.indices.shape[1]} each)"
        )

    def check(self) -> None:
        """Raise ValueError unless each token has sources: finite weights of a positive sum; waits for the device."""
        sums = self.weights.detach().sum(1)
        if not bool((torch.isfinite(sums) & (sums > 0)).all()):
            raise ValueError(
                "the weights of every token's sources must be finite and their sum positive (one, unless tokens are "
                f"added up), got sums from {float(sums.min()):.3g} to {float(sums.max()):.3g}"
            )

    def rebuild(self, sources: Float[Tensor, "T*S D"]) -> Float[Tensor, "n D"]:
        """Return the mixtures of these source tokens, in float32 or better."""
        dtype = torch.promote_types(sources.dtype, torch.float32)
        parts = sources[self.indices.to(sources.device)].to(dtype)
        return torch.einsum("nm,nmd->nd", self.weights.to(parts), parts)

    def shares(self) -> Float[Tensor, "n m"]:
        """Return each token's distribution over its sources: the weights, divided by their sum."""
        return self.weights / self.weights.sum(1, keepdim=True)

    def frame_shares(self) -> Float[Tensor, "n T"]:
        """Return each token's distribution over frames."""
        return _summed(self.indices // self.patches, self.shares(), self.frames)

    def dense(self) -> Float[Tensor, "n T*S"]:
        """Return the dense matrix of weights, which is large."""
        return _summed(self.indices, self.weights, self.frames * self.patches)


def _summed(columns: Int[Tensor, "n m"], values: Float[Tensor, "n m"], count: int) -> Float[Tensor, "n count"]:
    """Return a dense matrix with every value added to its column."""
    return values.new_zeros((len(columns), count)).scatter_add_(1, columns, values)
