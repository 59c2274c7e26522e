"""Common part of published methods as `TokenMethod`s: a count of tokens instead of a budget, and their own limits."""

from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.budget import Budget
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.numerics import full_precision
from aviot.methods.base import Compressed, TokenMethod
from aviot.methods.features import VideoFeatures

P = TypeVar("P", bound=Hashable)  # of a method's parameters
STEPS = 60  # of a bisection; a float64 interval of length one shrinks to its rounding in 53


class BudgetedMethod(TokenMethod):
    """A method on tokens that gets a count; a budget of all tokens or more returns every token unchanged."""

    def compress(self, video: VideoFeatures, *, question: Float[Tensor, "d"] | None, budget: Budget) -> Compressed:
        """Reduce the video to at most the budget's count of tokens, with products in full precision.

        Raises ValueError for tokens or extras that are not finite: a selection may drop them and answer from others.
        """
        finite = FiniteCheck()
        finite.require(video.features, "the video's tokens are")
        for name in sorted(self.needs & video.extras.keys()):
            finite.require(video.extras[name], f"values of the extra {name!r} are")
        finite.raise_pending()
        limit = video.limit(budget)
        with full_precision(video.features.device):
            if limit >= video.frames * video.cells:
                return self.everything(video)
            return self.reduce(video, question, limit)

    def everything(self, video: VideoFeatures) -> Compressed:
        """Return every token unchanged."""
        return Compressed.kept(video, torch.arange(video.frames * video.patches, device=video.features.device))

    @abstractmethod
    def reduce(self, video: VideoFeatures, question: Float[Tensor, "d"] | None, limit: int) -> Compressed:
        """Return at most `limit` tokens, fewer than the video has."""

    def refuse_below(self, least: int, video: VideoFeatures, limit: int, reason: str) -> None:
        """Raise ValueError if the limit is below the smallest number of tokens that the method can return."""
        if limit < least:
            total = video.frames * video.cells
            raise ValueError(
                f"method {self.name!r} keeps at least {least} of {total} tokens ({least / total:.1%}) of a video of "
                f"{video.frames} frames, because {reason}; the budget allows {limit}. Give a larger budget, or choose "
                "a method without this limit, such as 'vidcom2-exact'"
            )


class ParameterizedMethod(BudgetedMethod, Generic[P]):
    """A budgeted method with parameters of its own, which decide its result beside the video and the budget."""

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """Add the parameters."""
        return *super().replay_key, self.parameters


def largest_within(count: Callable[[float], int], limit: int, low: float, high: float) -> float:
    """Return the largest parameter between `low` and `high` whose count is within a limit, by bisection.

    The count must not fall as the parameter grows. `low` is returned if no larger parameter is found.
    """
    if count(high) <= limit:
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        if count(middle) <= limit:
            low = middle
        else:
            high = middle
    return low


def most_attended_of_frames(attention: Float[Tensor, "T N"], limit: int) -> Int[Tensor, "n"]:
    """Return flat indices of the most attended token of each frame, of at most `limit` frames, ascending.

    For budgets below one token per frame: the frames whose best token is least attended get none.
    """
    best = attention.max(1)
    each = torch.arange(len(attention), device=attention.device) * attention.shape[1] + best.indices
    return each[best.values.argsort(descending=True, stable=True)[:limit]].sort().values
