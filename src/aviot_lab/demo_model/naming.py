"""Auxiliary task of naming: visual tokens and the names of what they show are aligned as in SigLIP.

Relevance, by which the compressor allocates supports, is the cosine of a frame's mean with the question's mean
embedding, and no gradient reaches it. A pretrained model has such an alignment; this one has to learn it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.patches import UNLABELLED, cell_middles
from aviot_lab.world import Scene, own_looks, tracks
from aviot_lab.world.description import SIZE_LIMITS, SIZE_WORDS

NAMES = (*SHAPES, *COLOUR_NAMES, *TEXTURES, *SIZE_WORDS, "top", "bottom", "left", "right")
EPSILON = 0.1  # least norm that a vector is divided by: the padding's embedding is zero


class NamingLoss(nn.Module):
    """A sigmoid loss over visual tokens and words: tokens are similar to the names of what they show only."""

    names: Tensor

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        pieces = [tokenizer(f" {name}", add_special_tokens=False)["input_ids"] for name in NAMES]
        self.register_buffer("names", torch.tensor([first for first, *_ in pieces]), persistent=False)
        self.scale = nn.Parameter(torch.tensor(2.0))  # logarithm of the cosine's factor
        self.bias = nn.Parameter(torch.tensor(-4.0))

    def loss(
        self, tokens: Float[Tensor, "... d"], words: Float[Tensor, "W d"], seen: Int8[Tensor, "... names"]
    ) -> Float[Tensor, ""]:
        """Return the loss, with equal weight for visible names and all other words.

        `seen` is 1 for a visible name, 0 for another, `UNLABELLED` for one that does not count.
        """
        cosine = F.normalize(tokens.float(), dim=-1, eps=EPSILON) @ F.normalize(words.float(), dim=-1, eps=EPSILON).T
        named = torch.zeros(cosine.shape, dtype=seen.dtype, device=seen.device)
        named[..., self.names] = seen
        target, other = (named == 1).to(cosine), (named == 0).to(cosine)
        each = F.binary_cross_entropy_with_logits(self.scale.exp() * cosine + self.bias, target, reduction="none")
        return ((each * target).sum() / target.sum().clamp_min(1) + (each * other).sum() / other.sum()) / 2


def visible_names(scenes: Sequence[Scene], frames: Sequence[int] | None = None) -> Int8[Tensor, "V T names"]:
    """Return which names each frame, or each of these frames, shows: 1 if so, 0 if not.

    Names of objects whose look belongs to another split are `UNLABELLED`.
    """
    shown = [tracks(scene, frames) for scene in scenes]
    seen = torch.zeros(len(scenes), shown[0].visible.shape[1], len(NAMES), dtype=torch.int8)
    for number, (scene, truth) in enumerate(zip(scenes, shown, strict=True)):
        own = own_looks(scene, truth)
        for label, which in ((UNLABELLED, ~own), (1, own)):
            actors, at = np.nonzero(truth.visible & which)
            looks = [torch.from_numpy(word[actors, at]) for word in (truth.shape, truth.colour, truth.texture)]
            rest = [torch.from_numpy(part[actors, at]) for part in (truth.size, truth.y, truth.x)]
            for name in _numbered(looks, *rest):
                seen[number, torch.from_numpy(at), name] = label
    return seen


def names_of_cells(
    looks: Int[Tensor, "3 N S"], place: Float[Tensor, "N S 3"], grid: tuple[int, int], stride: int
) -> Int8[Tensor, "N cells names"]:
    """Return which names the middle of each pooled cell shows, from the `patch_targets` of its patches.

    1 and 0 as in `visible_names`; all are `UNLABELLED` where the looks are.
    """

    def middles(values: Tensor) -> Tensor:
        return values.unflatten(1, grid)[:, stride // 2 :: stride, stride // 2 :: stride].flatten(1, 2)

    looks = torch.stack([middles(look) for look in looks])
    across, down, radius = (middles(place) * stride).unbind(-1)  # patches
    rows, columns = cell_middles(grid, stride, place.device)
    y = (rows[:, None].expand(-1, len(columns)).flatten() + down) / grid[0]
    x = (columns.expand(len(rows), -1).flatten() + across) / grid[1]
    there = looks[0] < len(SHAPES)
    known = looks[0] != UNLABELLED
    seen = torch.zeros(*there.shape, len(NAMES), dtype=torch.bool, device=place.device)
    for name in _numbered([look.where(there & known, 0) for look in looks], radius / grid[0], y, x):
        seen |= F.one_hot(name, len(NAMES)).bool() & there[..., None]
    return seen.to(torch.int8).where(known[..., None], UNLABELLED)


def _numbered(looks: Sequence[Tensor], size: Tensor, y: Tensor, x: Tensor) -> Iterator[Int[Tensor, "..."]]:
    """Yield indices in `NAMES`: of the objects' shape, colour, texture, size, and halves of the frame."""
    yield looks[0]
    yield looks[1] + len(SHAPES)
    yield looks[2] + len(SHAPES) + len(COLOUR_NAMES)
    after = len(SHAPES) + len(COLOUR_NAMES) + len(TEXTURES)
    limits = to_device(torch.tensor(SIZE_LIMITS, dtype=size.dtype), size.device)
    yield torch.bucketize(size.contiguous(), limits) + after
    after += len(SIZE_WORDS)
    yield (y > 0.5).long() + after
    yield (x > 0.5).long() + after + 2
