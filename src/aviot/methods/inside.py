"""Methods that act inside the decoder, and two stages as one method.

A method is stateless. For every prompt it starts a `Reduction`, which the engine asks at each layer whether visual
tokens leave there, and which of those that stay take up others.
"""

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aviot.budget import Budget
from aviot.methods.base import Compressed, Method, TokenMethod
from aviot.methods.features import VideoFeatures
from aviot.methods.reduction import Entering, Kept, Reduction


class InsideMethod(Method):
    """A method that drops or merges visual tokens inside the decoder, in layers of its own choice.

    Every token enters the decoder. The budget limits the tokens that are left when the method has done its work, unless
    its docstring says otherwise.
    """

    point = "decoder"

    @abstractmethod
    def start(self, entering: Entering) -> Reduction:
        """Return the state machine of one prompt; raise ValueError if this decoder does not fit the method."""

    @property
    def inside(self) -> "InsideMethod":
        """The method itself."""
        return self

    def compress(self, video: VideoFeatures, *, question: Float[Tensor, "d"] | None, budget: Budget) -> Compressed:
        """Return every token; tokens are dropped later, inside the decoder."""
        every = torch.arange(video.frames * video.patches, device=video.features.device)
        return Compressed.kept(video, every)


class DecoderMethod(InsideMethod):
    """A method that drops visual tokens once, before layer `layer`, except those that `select` returns.

    The layers before it read every token. `budget` counts the tokens that the layers after it read.
    """

    layer: int
    needs_attention: ClassVar[bool] = False  # True if `select` needs the last token's attention in the layer before

    @abstractmethod
    def select(
        self, hidden: Float[Tensor, "n d"], attention: Float[Tensor, "heads n"] | None, count: int
    ) -> Int[Tensor, "count"]:
        """Return the indices of the visual tokens that stay, in ascending order."""

    def start(self, entering: Entering) -> Reduction:
        """Return the reduction that selects once."""
        entering.check_layer(self.name, self.layer, attention=self.needs_attention)
        return _Selection(self, len(entering) if entering.limit is None else entering.limit)


@dataclass
class _Selection(Reduction):
    """One selection before a method's layer."""

    method: DecoderMethod
    count: int

    def queries(self, layer: int) -> int:
        """Return one, for the last token, in the layer before the method's."""
        return int(self.method.needs_attention and layer == self.method.layer - 1)

    def before(self, layer: int, hidden: Tensor, attention: Tensor | None) -> Kept | None:
        """Ask the method at its layer."""
        if layer != self.method.layer:
            return None
        last = None if attention is None else attention[:, -1]
        kept = self.method.select(hidden, last, self.count).to(hidden.device)
        _check_selection(self.method.name, kept, self.count, len(hidden))
        return Kept(kept.long())


def _check_selection(name: str, kept: Tensor, most: int, count: int) -> None:
    """Raise ValueError unless indices are whole numbers below `count`, ascending, and at most `most`."""
    is_index = kept.ndim == 1 and kept.dtype in (torch.int64, torch.int32)
    in_order = is_index and bool((kept[1:] > kept[:-1]).all())
    if not in_order or not 1 <= len(kept) <= most or not 0 <= int(kept[0]) <= int(kept[-1]) < count:
        raise ValueError(
            f"method {name!r} must select 1 to {most} ascending indices of {count} visual tokens, got {kept.dtype} "
            f"{tuple(kept.shape)}"
        )


class TwoStage(TokenMethod):
    """A method on projected tokens, followed by a second stage inside the decoder.

    The budget counts the tokens that the first stage lets enter; the second keeps its own share of them.
    """

    def __init__(self, name: str, first: TokenMethod, second: InsideMethod, title: str = "") -> None:
        if first.point != "tokens" or second.point != "decoder":
            raise ValueError(
                f"two stages are a method on tokens and one inside the decoder, got {first.name!r} on {first.point} "
                f"and {second.name!r} on {second.point}"
            )
        own: dict[str, Any] = {"name": name, "title": title or f"{first.title or first.name}, then {second.name}"}
        for about in ("trained", "uses_question", "needs", "uses_times", "replayable"):
            own[about] = getattr(first, about)
        vars(self).update(own)  # of this pair, where a class has them for all its instances
        self.first, self.second = first, copy(second)
        vars(self.second)["name"] = name  # errors of the second stage name the method that the user chose

    @property
    def inside(self) -> InsideMethod:
        """The second stage."""
        return self.second

    @property
    def replay_key(self) -> tuple[Hashable, ...]:
        """The first stage's."""
        return type(self), self.name, *self.first.replay_key

    def bind(self, parts: Mapping[str, nn.Module]) -> Method:
        """Return the pair with the first stage's trained parts."""
        bound = self.first.bind(parts)
        if bound is self.first:
            return self
        assert isinstance(bound, TokenMethod)  # a method stays of its kind
        return TwoStage(self.name, bound, self.second, self.title)

    def compress(self, video: VideoFeatures, *, question: Float[Tensor, "d"] | None, budget: Budget) -> Compressed:
        """Return the first stage's tokens, which enter the decoder."""
        return self.first.compress(video, question=question, budget=budget)
