"""The own work of methods that act inside the decoder, on synthetic hidden states and attention rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from aviot.methods.base import Compressed
from aviot.methods.inside import InsideMethod
from aviot.methods.reduction import Entering, Kept, mix_groups

LAYERS = 28  # of the decoder: as many as methods' published layers need
HEADS = 28
TEXT = 32  # tokens after the video


def inside_steps(method: InsideMethod, made: Compressed, limit: int | None, seed: int) -> Callable[[], int]:
    """Return a function that runs a method's steps in every layer and returns how many tokens are left.

    Hidden states and attention rows are drawn beforehand; what the decoder does for the method, its attention rows and
    the shorter sequences, is not part of the work. Raises ValueError if the method does not fit such a decoder.
    """
    device, count = made.tokens.device, len(made)
    entering = Entering(made, torch.arange(count, device=device), limit, (True,) * LAYERS, TEXT)
    first = method.start(entering)
    most = max(first.queries(layer) for layer in range(LAYERS))
    g = torch.Generator(device).manual_seed(seed)
    drawn = torch.rand(HEADS, most, count, generator=g, device=device) / count

    def run() -> int:
        reduction, hidden, rows = method.start(entering), made.tokens, None
        for layer in range(LAYERS):
            if layer and (kept := reduction.before(layer, hidden, rows)) is not None:
                hidden = _left(hidden, kept)
            queries = reduction.queries(layer)
            rows = drawn[:, :queries, : len(hidden)] if queries else None
            if (kept := reduction.within(layer, hidden, rows)) is not None:
                hidden, rows = _left(hidden, kept), None
        return len(hidden)

    return run


def _left(hidden: Tensor, kept: Kept) -> Tensor:
    """Return the hidden states that stay, with those merged into them."""
    if kept.into is None or kept.weights is None:
        return hidden[kept.index]
    return mix_groups(hidden, kept.into, kept.weights, len(kept.index)).to(hidden.dtype)
