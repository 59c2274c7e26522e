"""Encoders whose layers are compiled by torch.compile, which fuses norms, rotary embeddings and activations.

Measured on one H200 for 64 frames of 720p (docs/backbones.md): it pays for families that pack frames into one sequence
and turn queries and keys in float32; SigLIP's layers have little to fuse.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from aviot.backbones.attention import attention_modules


def compile_layers(encoder: nn.Module) -> None:
    """Compile each layer of an encoder in place; weights and their names stay as they are.

    torch.compile decides when a video of another size needs another compilation.
    """
    stacks = [one for one in encoder.modules() if isinstance(one, nn.ModuleList) and attention_modules(one)]
    for layer in stacks[0]:
        layer.compile()


@contextmanager
def eagerly(compiled: bool) -> Iterator[None]:
    """Run compiled layers as they are written inside the block, so that hooks in them are called."""
    if not compiled:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
