"""Pictures and the names of what they show, drawn together as SigLIP does it, so that a question finds its frames.

Relevance, by which supports are allotted, is the cosine of a frame's mean with the question's mean embedding, and no
gradient reaches it. A pretrained model brings such a likeness along; this one has to learn it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from aviot.synthetic import Scene, tracks
from aviot.synthetic.words import COLOUR_NAMES, SHAPES

NAMES = (*SHAPES, *COLOUR_NAMES)
EPSILON = 0.1  # the least length a vector is divided by: the padding's embedding has none


class Naming(nn.Module):
    """A sigmoid loss over frames and words: a frame is like the names of what it shows, and like no other word."""

    names: Tensor

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        pieces = [tokenizer(f" {name}", add_special_tokens=False)["input_ids"] for name in NAMES]
        self.register_buffer("names", torch.tensor([first for first, *_ in pieces]), persistent=False)
        self.scale = nn.Parameter(torch.tensor(2.0))  # its exponential multiplies the cosine
        self.bias = nn.Parameter(torch.tensor(-4.0))

    def loss(
        self, tokens: Float[Tensor, "... d"], words: Float[Tensor, "W d"], seen: Bool[Tensor, "... names"]
    ) -> Float[Tensor, ""]:
        """Of the decoder's tokens of patches or frames; names that are seen and all other words weigh the same."""
        cosine = F.normalize(tokens.float(), dim=-1, eps=EPSILON) @ F.normalize(words.float(), dim=-1, eps=EPSILON).T
        target = torch.zeros_like(cosine)
        target[..., self.names] = seen.to(target)
        each = F.binary_cross_entropy_with_logits(self.scale.exp() * cosine + self.bias, target, reduction="none")
        return (
            (each * target).sum() / target.sum().clamp_min(1) + (each * (1 - target)).sum() / (1 - target).sum()
        ) / 2


def names_seen(scenes: Sequence[Scene], frames: Sequence[int] | None = None) -> Bool[Tensor, "V T names"]:
    """Which shapes and colours each frame shows, or each of these frames."""
    shown = [tracks(scene, frames) for scene in scenes]
    seen = torch.zeros(len(scenes), shown[0].visible.shape[1], len(NAMES), dtype=torch.bool)
    for number, truth in enumerate(shown):
        actors, at = np.nonzero(truth.visible)
        seen[number, at, truth.shape[actors, at]] = True
        seen[number, at, len(SHAPES) + truth.colour[actors, at]] = True
    return seen


def names_at(looks: Int[Tensor, "3 N S"], grid: tuple[int, int], stride: int) -> Bool[Tensor, "N cells names"]:
    """The names of what is at the middle of each pooled cell, of what `patch_targets` says of its patches."""
    rows, columns = (slice(stride // 2, None, stride) for _ in grid)
    shape, colour = (look.unflatten(1, grid)[:, rows, columns].flatten(1) for look in looks[:2])
    named = [
        F.one_hot(look, kinds + 1)[..., :-1] for look, kinds in ((shape, len(SHAPES)), (colour, len(COLOUR_NAMES)))
    ]
    return torch.cat(named, -1).bool()
