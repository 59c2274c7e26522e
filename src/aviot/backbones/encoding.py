"""Progress of a vision encoder, which can also be stopped between two of its layers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from aviot.backbones.base import Backbone

ENCODER_WORDS = ("vision", "visual")  # in the names of encoders, whatever the family


def encoder_blocks(backbone: Backbone) -> list[nn.Module]:
    """Return the layers of a model's vision encoder in order; none if they cannot be told by their names."""
    lists = (
        list(module)
        for name, module in backbone.model.named_modules()
        if isinstance(module, nn.ModuleList) and any(word in name for word in ENCODER_WORDS)
    )
    return max(lists, key=len, default=[])


@contextmanager
def watched_encoder(backbone: Backbone, frames: int, tell: Callable[[float], None]) -> Iterator[None]:
    """Call `tell` before each of the encoder's layers with the share of the work that is done, in this thread alone.

    An encoder may take the frames in several batches, or all in one sequence. What `tell` raises ends the encoding.
    """
    blocks, thread, done = encoder_blocks(backbone), threading.get_ident(), 0

    def before(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        nonlocal done
        if threading.get_ident() != thread:
            return
        tell(min(1.0, done / (frames * len(blocks))))
        states: Any = inputs[0] if inputs else named.get("hidden_states")
        done += len(states) if getattr(states, "ndim", 0) == 3 else frames

    handles = [block.register_forward_pre_hook(before, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
