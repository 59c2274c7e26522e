"""Reduction of visual tokens inside the decoder: the steps of a reduction, and the record of all of them."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.methods.base import Compressed
from aviot.methods.features import TokenMixture


@dataclass(frozen=True)
class Entering:
    """One prompt's visual tokens as they enter the decoder, and what the decoder has to offer.

    `order` has each visual token's index among those of `made`, -1 for structure tokens. `limit` is the number of
    tokens that the budget leaves, None if the method's own share decides. `attends` tells for each layer whether it
    has softmax attention, and `text` is the number of tokens after the last visual one.
    """

    made: Compressed
    order: Int[Tensor, "n"]
    limit: int | None
    attends: tuple[bool, ...]
    text: int

    def __len__(self) -> int:
        return len(self.order)

    @property
    def layers(self) -> int:
        """The number of decoder layers."""
        return len(self.attends)

    def check_layer(self, name: str, layer: int, *, attention: bool) -> None:
        """Raise ValueError unless a method can act before this layer, with the attention of the one before it."""
        if not 0 < layer < self.layers:
            raise ValueError(
                f"method {name!r} drops tokens before layer {layer}, and this decoder has {self.layers}; "
                f"choose a layer from 1 to {self.layers - 1}"
            )
        if attention and not self.attends[layer - 1]:
            possible = [str(at) for at, softmax in enumerate(self.attends[:-1]) if softmax]
            raise ValueError(
                f"method {name!r} reads the attention of layer {layer - 1}, which is a linear-attention layer here; "
                f"choose one with softmax attention ({', '.join(possible) or 'this decoder has none'})"
            )


@dataclass(frozen=True)
class Kept:
    """The visual tokens that stay at one step, as ascending indices of those before it, and what they take up.

    With `into` and `weights` tokens are merged: token i adds `weights[i]` of itself to the one that stays at
    `index[into[i]]`, or to none if `into[i]` is -1; tokens that stay name themselves. With `cut` the tokens that leave
    are removed from the caches of earlier layers too.
    """

    index: Int[Tensor, "k"]
    into: Int[Tensor, "n"] | None = None
    weights: Float[Tensor, "n"] | None = None
    cut: bool = False

    def check(self, name: str, count: int) -> None:
        """Raise ValueError unless what stays is ascending indices of `count` tokens, and what is merged fits them."""
        index, merged = self.index, (self.into, self.weights)
        if index.ndim != 1 or index.dtype != torch.int64 or not len(index) or len(index) > count:
            raise ValueError(
                f"method {name!r} must keep 1 to {count} visual tokens, got {index.dtype} {tuple(index.shape)}"
            )
        if not bool((index[1:] > index[:-1]).all()) or not 0 <= int(index[0]) <= int(index[-1]) < count:
            raise ValueError(f"method {name!r} must keep ascending indices below {count}")
        if any(
            (part is None) != (merged[0] is None) or (part is not None and part.shape != (count,)) for part in merged
        ):
            raise ValueError(f"method {name!r} must give a place and a weight for each of {count} tokens, or neither")
        if self.into is not None and not -1 <= int(self.into.min()) <= int(self.into.max()) < len(index):
            raise ValueError(f"method {name!r} must merge tokens into those {len(index)} that stay, or none (-1)")

    @classmethod
    def best(cls, scores: Float[Tensor, "n"], count: int) -> "Kept":
        """Keep the tokens with the highest scores."""
        return cls(scores.topk(min(count, len(scores))).indices.sort().values)


class Reduction:
    """The state of one prompt's reduction inside the decoder, which the engine asks layer by layer in the prefill.

    `looks` and `sees` are asked for every decoded token instead.

    `hidden` and `attention` are those of the visual tokens that are left; `attention` has the rows that `queries` asked
    for in the latest layer, None if it asked for none.
    """

    def queries(self, layer: int) -> int:
        """Return how many of the last tokens' attention rows this layer must compute; by default none."""
        return 0

    def before(
        self, layer: int, hidden: Float[Tensor, "n d"], attention: Float[Tensor, "heads q n"] | None
    ) -> Kept | None:
        """Return what stays before a layer, from layer 1 on; None: everything."""
        return None

    def within(
        self, layer: int, hidden: Float[Tensor, "n d"], attention: Float[Tensor, "heads q n"] | None
    ) -> Kept | None:
        """Return what stays between a layer's attention and its feed-forward part; None: everything."""
        return None

    def looks(self, layer: int) -> bool:
        """Return whether a decoded token's attention in this layer is needed, for `sees`; by default not."""
        return False

    def sees(self, layer: int, attention: Float[Tensor, "heads n"]) -> Int[Tensor, "k"] | None:
        """Return the visual tokens that the token decoded now sees from this layer on; None: all that are left."""
        return None


def mix_groups(
    values: Float[Tensor, "n d"], into: Int[Tensor, "n"], weights: Float[Tensor, "n"], count: int
) -> Float[Tensor, "count d"]:
    """Return the weighted sum of each group's values, in float32 or better and always in the same order."""
    dtype = torch.promote_types(values.dtype, torch.float32)
    members = into.argsort(stable=True)[int((into < 0).sum()) :]
    weighted = values[members].to(dtype) * weights[members, None].to(dtype)
    lengths = torch.bincount(into[members], minlength=count)
    return torch.segment_reduce(weighted, "sum", lengths=lengths, axis=0)


@dataclass(frozen=True)
class Reduced:
    """The fate of each visual token that entered: its place among those left (-1: dropped) and its weight there."""

    place: Int[Tensor, "n"]
    weights: Float[Tensor, "n"]
    left: int

    @classmethod
    def nothing(cls, count: int, device: torch.device) -> "Reduced":
        """Return the state in which every token is left."""
        return cls(torch.arange(count, device=device), torch.ones(count, device=device), count)

    def after(self, step: Kept) -> "Reduced":
        """Return the state after one more step."""
        if step.into is None or step.weights is None:
            into = step.index.new_full((self.left,), -1)
            into[step.index] = torch.arange(len(step.index), device=step.index.device)
            weights = torch.ones_like(into, dtype=self.weights.dtype)
        else:
            into, weights = step.into, step.weights.to(self.weights)
        there = self.place >= 0
        place = torch.where(there, into[self.place], -1)
        return Reduced(place, torch.where(there, self.weights * weights[self.place], 0), len(step.index))

    def mix(self, values: Float[Tensor, "n d"]) -> Float[Tensor, "left d"]:
        """Return the tokens left, given a value of each that entered; those that took up none are copied."""
        return mix_groups(values, self.place, self.weights, self.left).to(values.dtype)

    def result(self, made: Compressed, order: Int[Tensor, "n"]) -> Compressed:
        """Return the tokens left as mixtures of the sources behind those that entered.

        Structure tokens have no source: they are left out, and so is their share of a token that took them up; its
        weights are scaled to sum to what they would without it.
        """
        device = made.tokens.device
        order = order.to(device)
        place, weights = self.place.to(device), self.weights.to(device)
        from_video = (place >= 0) & (order >= 0)
        whole = _sums(place[place >= 0], weights[place >= 0], self.left)
        part = _sums(place[from_video], weights[from_video], self.left)
        own = part > 0
        scale = torch.where(own, whole / part.clamp_min(torch.finfo(part.dtype).tiny), 0)
        number = own.cumsum(0) - 1
        entering = from_video.nonzero()[:, 0]
        entering = entering[place[entering].argsort(stable=True)]
        group = number[place[entering]]
        weights = weights[entering] * scale[place[entering]]
        indices, count = order[entering], int(own.sum())
        tokens = mix_groups(made.tokens[indices], group, weights, count).to(made.tokens.dtype)

        def positions() -> Tensor:
            means = mix_groups(made.positions[indices], group, weights, count) / _sums(group, weights, count)[:, None]
            return means.to(made.positions.dtype)

        def mixture() -> TokenMixture:
            return _joined(made.mixture, indices, group, weights)

        return Compressed(tokens, made.grid, positions, mixture, frame_times=made.frame_times)


def _sums(groups: Int[Tensor, "m"], weights: Float[Tensor, "m"], count: int) -> Float[Tensor, "count"]:
    return mix_groups(weights[:, None], groups, torch.ones_like(weights), count)[:, 0]


def _joined(
    mixture: TokenMixture, indices: Int[Tensor, "m"], group: Int[Tensor, "m"], weights: Float[Tensor, "m"]
) -> TokenMixture:
    """Return one mixture per group of a mixture's tokens; `group` is ascending and skips none."""
    sizes = torch.bincount(group)
    rank = torch.arange(len(group), device=group.device) - (sizes.cumsum(0) - sizes)[group]
    shape = (len(sizes), int(sizes.max()), mixture.indices.shape[1])
    sources = mixture.indices.new_zeros(shape)
    shares = mixture.weights.new_zeros(shape)
    sources[group, rank] = mixture.indices[indices]
    shares[group, rank] = mixture.weights[indices] * weights[:, None].to(mixture.weights)
    return replace(mixture, indices=sources.flatten(1), weights=shares.flatten(1))
